"""Drive a server from Locust's own command.

    locust -f locustfiles/replay.py --host http://127.0.0.1:8000

One Locust user is --rate-per-user requests per second of offered load. Prompts and lengths are those of the packaged
sets, or of the workload in SERVEBENCH_WORKLOAD.
"""

from servebench.loadgen.locustfile import LoadToken

__all__ = ["LoadToken"]
