"""Know what a service is asked outside of the load, by blocking calls that go the way the load goes."""
