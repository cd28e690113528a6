"""Know how a continuous-batching engine behaves: the simulated server."""
