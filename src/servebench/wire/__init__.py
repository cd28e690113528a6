"""Know how bytes of a response become events, tokens and an outcome; no socket, no clock."""
