"""Know the literal definitions of all metrics, by theme."""
