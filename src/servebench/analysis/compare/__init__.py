"""Know whether a change made a service better: paired runs, their conditions, and the boundaries of acceptance."""
