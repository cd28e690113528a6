"""Know whose fault an error is: the user's input, the harness, or the recorded data.

A server's fault is no exception: it becomes an `Outcome` and the run goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class ServebenchError(Exception):
    """Base of the errors that a command turns into one message and an exit code."""

    exit_code = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong in an input: where, which value, and the way out.

    `line` is 1-based, None where the input has no lines (an option).
    """

    place: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}  {self.place}" if self.line is not None else self.place
        return f"{where}  {self.message}"


class SpecError(ServebenchError):
    """The user's input is wrong; holds every fault of that input."""

    exit_code = 2

    def __init__(self, source: str, faults: Sequence[Fault], way_out: str = "") -> None:
        self.source = source
        self.faults = tuple(faults)
        self.way_out = way_out
        count = len(self.faults)
        lines = [f"{source} has {count} fault{'s' if count != 1 else ''}", *(f"  {fault}" for fault in self.faults)]
        if way_out:
            lines.append(f"  try: {way_out}")
        super().__init__("\n".join(lines))


class InputError(ServebenchError):
    """A single value outside a file is wrong: a URL, an option, a path. The message carries the way out."""

    exit_code = 2


class HarnessError(ServebenchError):
    """servebench itself, or the machine under it, failed: the run stops."""

    exit_code = 4


class ShardError(ServebenchError):
    """Recorded data cannot be read as what it claims to be."""

    exit_code = 2
