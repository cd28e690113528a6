"""Know Locust and gevent: everything that sends load and records it runs here."""
