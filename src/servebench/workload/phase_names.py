"""Know the names of phases that no workload file names: what a person drives, and closed users."""

MANUAL = "manual"
CLOSED = "closed"
CLOSED_WARMUP = "warmup"
