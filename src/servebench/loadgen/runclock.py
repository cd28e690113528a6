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
    """Return the identity of this boot: processes that share it share CLOCK_MONOTONIC."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
