"""Know the names of phases that no workload file names: what a person drives, closed users, the warm pass."""

MANUAL = "manual"
CLOSED = "closed"
CLOSED_WARMUP = "warmup"
CACHE_WARMUP = "cache-warmup"
