"""Know how recorded traffic is written, and read it into columns.

Azure LLM inference traces: CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens. 2023: seven digits of a
second, no zone, CRLF, no final line end. 2024: six digits, `+00:00`. Times become int64 ns after the first kept row,
subtracted as integers, so nothing is lost to floats. Rows that generated nothing are failed calls in the source: they
are left out and counted. Rows out of order are sorted, stably, and the steps back are counted; no wait is negative.
"""

import calendar
import io
import re
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from servebench.core.errors import Fault, InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.builtin import read_data
from servebench.workload.model import TraceSlice

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MAX_FAULTS = 20
_MAX_TOKENS = 2**31 - 1

_MINUTE = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d)")
_SECONDS = re.compile(r"(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Recorded requests in order of time.

    `offset_ns` int64, after the first kept row; `input_tokens` and `output_tokens` int32; all of one length.
    `left_out_ns` int64: times of the rows without output, which are not among the rows; negative before the first kept
    one. `session` numbers conversations, -1 = a row that belongs to none; None = the format has none.
    """

    path: str
    offset_ns: npt.NDArray[np.int64]
    input_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    left_out_ns: npt.NDArray[np.int64]
    steps_back: int
    session: npt.NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.offset_ns)


def read_trace(path: str) -> Trace:
    """Return an Azure trace; `path` is absolute or `builtin:<name>`.

    Raises SpecError with the faults of the file, at most 20 of them, and InputError where it cannot be read.
    """
    return parse_azure(read_data(path), path)


class Traces:
    """The traces of one workload, each read once."""

    def __init__(self) -> None:
        self._read: dict[str, Trace] = {}

    def read(self, path: str) -> Trace:
        """Return a trace like `read_trace`."""
        if path not in self._read:
            self._read[path] = read_trace(path)
        return self._read[path]


def parse_azure(data: bytes, source: str) -> Trace:
    """Return the trace in the bytes of an Azure CSV.

    Raises SpecError: columns missing, rows that are none, nothing usable.
    """
    # Line by line from the bytes: a list of all lines of a long trace would take ten times its size.
    lines = io.BytesIO(data.removeprefix(b"\xef\xbb\xbf"))
    reader = _RowReader(*_columns(lines.readline().decode(errors="replace"), source))
    for number, line in enumerate(lines, start=2):
        if not line.isspace():
            reader.read(line.decode(errors="replace"), number)
            if len(reader.faults) >= MAX_FAULTS:
                break
    if reader.faults:
        raise SpecError(source, reader.faults)
    return _in_order(reader, source)


def rows_of(trace: Trace, part: TraceSlice) -> slice:
    """Return which rows a slice of a trace selects: start <= offset < start + length."""
    first, last = np.searchsorted(trace.offset_ns, [part.start_ns, _end_ns(part)], side="left")
    return slice(int(first), int(last))


def left_out_of(trace: Trace, part: TraceSlice) -> int:
    """Return how many rows without output lie in a slice of a trace."""
    return int(np.count_nonzero((trace.left_out_ns >= part.start_ns) & (trace.left_out_ns < _end_ns(part))))


def whole_seconds_ns(trace: Trace, start_ns: int) -> int:
    """Return the length from `start_ns` to the end of a trace, rounded up to a whole second that holds the last row."""
    return ((int(trace.offset_ns[-1]) - start_ns) // NS_PER_S + 1) * NS_PER_S


class _RowReader:
    """Collects the columns of an Azure CSV row by row, and its faults."""

    def __init__(self, time_at: int, input_at: int, output_at: int) -> None:
        self.time_at, self.input_at, self.output_at = time_at, input_at, output_at
        self.times = array("q")
        self.inputs = array("q")
        self.outputs = array("q")
        self.faults: list[Fault] = []
        self._minutes: dict[str, int] = {}

    def read(self, line: str, number: int) -> None:
        """Add one row, or the fault that it is."""
        fields = line.split(",")
        if len(fields) <= max(self.time_at, self.input_at, self.output_at):
            self.faults.append(Fault(place="row", message=f"{line.strip()!r} has too few fields", line=number))
            return
        time_ns = self._time_ns(fields[self.time_at], number)
        inputs = self._tokens(fields[self.input_at], AZURE_COLUMNS[1], number)
        outputs = self._tokens(fields[self.output_at], AZURE_COLUMNS[2], number)
        if time_ns is not None and inputs is not None and outputs is not None:
            self.times.append(time_ns)
            self.inputs.append(inputs)
            self.outputs.append(outputs)

    def _time_ns(self, field: str, number: int) -> int | None:
        text = field.strip().strip('"').strip()
        try:
            minute_ns = self._minutes.get(text[:16])
            if minute_ns is None:
                minute_ns = self._minutes[text[:16]] = _minute_ns(text[:16])
            return minute_ns + _seconds_ns(text[17:])
        except ValueError:
            message = f"{field!r} is no time such as 2023-11-16 18:15:46.6805900"
            self.faults.append(Fault(place=AZURE_COLUMNS[0], message=message, line=number))
            return None

    def _tokens(self, field: str, column: str, number: int) -> int | None:
        text = field.strip().strip('"').strip()
        if text.isascii() and text.isdigit() and int(text) <= _MAX_TOKENS:
            return int(text)
        message = f"{field.strip()!r} is no whole number of tokens from 0 to {_MAX_TOKENS}"
        self.faults.append(Fault(place=column, message=message, line=number))
        return None


def _columns(head: str, source: str) -> tuple[int, int, int]:
    """Return where the three columns stand; names are compared without quotes, blanks and case."""
    if not head.strip():
        msg = f"{source} is empty: no usable rows"
        raise InputError(msg)
    written = head.rstrip("\r\n").split(",")
    names = [name.strip().strip('"').strip().casefold() for name in written]
    missing = [name for name in AZURE_COLUMNS if name.casefold() not in names]
    if missing:
        message = f"column missing; the columns are {', '.join(repr(name) for name in written)}"
        raise SpecError(source, [Fault(place=name, message=message, line=1) for name in missing])
    time_at, input_at, output_at = (names.index(name.casefold()) for name in AZURE_COLUMNS)
    return time_at, input_at, output_at


def _minute_ns(text: str) -> int:
    match = _MINUTE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute = (int(part) for part in match.groups())
    if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and minute < 60):
        raise ValueError(text)
    return calendar.timegm((year, month, day, hour, minute, 0)) * NS_PER_S


def _seconds_ns(text: str) -> int:
    match = _SECONDS.fullmatch(text)
    if match is None or int(match[1]) > 60:
        raise ValueError(text)
    return int(match[1]) * NS_PER_S + int((match[2] or "0").ljust(9, "0")) - _zone_ns(match[3])


def _zone_ns(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60) * NS_PER_S


def _in_order(reader: _RowReader, source: str) -> Trace:
    times = np.array(reader.times, dtype=np.int64)
    inputs, outputs = np.array(reader.inputs, dtype=np.int32), np.array(reader.outputs, dtype=np.int32)
    steps_back = int(np.count_nonzero(np.diff(times) < 0))
    order = np.argsort(times, kind="stable")
    kept = order[outputs[order] > 0]
    if not len(kept):
        msg = f"{source} has no usable rows ({len(times)} rows, none with output tokens)"
        raise InputError(msg)
    zero = times[kept[0]]
    return Trace(
        path=source,
        offset_ns=times[kept] - zero,
        input_tokens=inputs[kept],
        output_tokens=outputs[kept],
        left_out_ns=times[order[outputs[order] == 0]] - zero,
        steps_back=steps_back,
    )


def _end_ns(part: TraceSlice) -> int:
    return np.iinfo(np.int64).max if part.length_ns is None else part.start_ns + part.length_ns
