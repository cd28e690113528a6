"""Know when the dispatcher wants the hub next, so that nothing else there takes a turn that runs past it.

Everything of a worker shares one thread. A batch of reads or a slice of parsing that has begun is not interrupted; a
request that comes due meanwhile waits for its end. Both ask here first how much room there is.
"""

from servebench.core.units import NS_PER_MS

LEAST_ROOM_NS = NS_PER_MS // 2
"""What a turn may take when a request is due at once: with less, turns would cost more than the work in them."""

_NEVER = 2**63 - 1


class NextDue:
    """One appointment, monotonic ns. The dispatcher's timer sets it; reactor and parse queue of its worker read it."""

    __slots__ = ("at_ns",)

    def __init__(self) -> None:
        self.at_ns = _NEVER

    def clear(self) -> None:
        """Say that nobody waits."""
        self.at_ns = _NEVER

    def room_ns(self, now_ns: int) -> int:
        """Return how long a turn that begins now may take."""
        return max(LEAST_ROOM_NS, self.at_ns - now_ns)
