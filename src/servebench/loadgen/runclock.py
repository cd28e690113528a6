"""Know the run clock of this process: nanoseconds since the planned start, on the local monotonic clock."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunClock:
    """Maps between the local CLOCK_MONOTONIC and the run clock; `epoch_monotonic_ns` is the local time of its zero."""

    epoch_monotonic_ns: int

    def now_ns(self) -> int:
        """Return the run time."""
        return time.monotonic_ns() - self.epoch_monotonic_ns

    def to_monotonic_ns(self, run_ns: int) -> int:
        """Return when a run time is due on the local monotonic clock."""
        return run_ns + self.epoch_monotonic_ns


def boot_id() -> str:
    """Return the identity of this process's monotonic clock: processes that share it share CLOCK_MONOTONIC.

    That is the boot id of the kernel; a time namespace with an offset of its own adds that offset in seconds and ns.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    offset = _namespace_offset()
    return boot if offset == ("0", "0") else f"{boot}+{'.'.join(offset)}"


def _namespace_offset() -> tuple[str, ...]:
    """Return the seconds and nanoseconds that a time namespace adds to CLOCK_MONOTONIC."""
    try:
        lines = Path("/proc/self/timens_offsets").read_text(encoding="ascii").splitlines()
    except OSError:  # kernels before 5.6 have no time namespaces
        return ("0", "0")
    return next((tuple(line.split()[1:3]) for line in lines if line.startswith("monotonic")), ("0", "0"))
