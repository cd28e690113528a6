"""Know traces written as CSV: Azure, BurstGPT, and the plain form with times in seconds.

Azure LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens. 2023: seven digits of a second, no zone, CRLF, no
final line end. 2024: six digits, `+00:00`. Times become int64 ns, subtracted as integers, so nothing is lost to floats.
BurstGPT: Timestamp in s, Request tokens, Response tokens; the longer form has a Session ID, blank on API rows. Plain:
timestamp in s, input_length, output_length, and session_id where there are conversations. Columns are found by name,
without quotes, blanks and case; others are not read.

A large file is read by Arrow. What Arrow does not take, and every small file, is read line by line: that is where
faults get their lines.
"""

import calendar
import csv
import io
import math
import re
from array import array
from collections.abc import Iterable
from typing import BinaryIO

import numpy as np

from servebench.core.errors import Fault, InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.rows import MAX_FAULTS, MAX_TOKENS, Rows
from servebench.workload.trace_layout import FARTHEST_S, Found, Layout, seconds_to_ns

LARGE_BYTES = 4_000_000
_MINUTE = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d)", re.ASCII)
_SECONDS = re.compile(r"(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def read_csv(stream: BinaryIO, source: str, layout: Layout, large_bytes: int = LARGE_BYTES) -> Rows:
    """Return the rows of a CSV trace; a file of more than `large_bytes` is read by Arrow where that can.

    The stream must be able to go back. Neither way holds the text of a large file.
    Raises SpecError: columns missing, rows that are none, and InputError for an empty file.
    """
    found = _columns(stream.readline().decode(errors="replace").removeprefix("\ufeff"), source, layout)
    begin = stream.tell()
    body = stream.read(large_bytes + 1)
    if len(body) <= large_bytes:
        return _read_lines(io.BytesIO(body), source, layout, found)
    del body
    from servebench.workload.trace_arrow import read_large

    stream.seek(begin)
    rows = read_large(stream, layout, found)
    if rows is None:
        stream.seek(begin)
        rows = _read_lines(stream, source, layout, found)
    return rows


def _read_lines(lines: Iterable[bytes], source: str, layout: Layout, found: Found) -> Rows:
    reader = _LineReader(layout, found)
    for number, line in enumerate(lines, start=2):
        if not line.isspace():
            reader.read(line.decode(errors="replace"), number)
            if len(reader.faults) >= MAX_FAULTS:
                break
    if reader.faults:
        raise SpecError(source, reader.faults)
    return reader.rows()


class _LineReader:
    """Collects the columns of a CSV row by row, and its faults."""

    def __init__(self, layout: Layout, found: Found) -> None:
        self.faults: list[Fault] = []
        self._layout, self._found = layout, found
        self._width = max(found.time, found.input, found.output)
        self._times: array[int] | array[float] = array("q") if layout.dated else array("d")
        self._inputs, self._outputs, self._sessions = array("i"), array("i"), array("i")
        self._numbers: dict[str, int] = {"": -1}
        self._minutes: dict[str, int] = {}

    def read(self, line: str, number: int) -> None:
        """Add one row, or the fault that it is."""
        try:
            fields = next(csv.reader([line], skipinitialspace=True)) if '"' in line else line.split(",")
        except csv.Error as error:
            self.faults.append(Fault(place="row", message=f"{_shown(line)}: {error}", line=number))
            return
        if len(fields) <= self._width:
            self.faults.append(Fault(place="row", message=f"{_shown(line)} has too few fields", line=number))
            return
        time = self._time(fields[self._found.time], number)
        inputs = self._tokens(fields[self._found.input], self._layout.input, number)
        outputs = self._tokens(fields[self._found.output], self._layout.output, number)
        if time is None or inputs is None or outputs is None:
            return
        self._times.append(time)  # type: ignore[arg-type] # whole ns or s with a fraction, as the array is
        self._inputs.append(inputs)
        self._outputs.append(outputs)
        at = self._found.session
        if at is not None:
            name = _plain(fields[at]) if at < len(fields) else ""
            self._sessions.append(self._numbers.setdefault(name, len(self._numbers) - 1))

    def rows(self) -> Rows:
        """Return what was read."""
        dated = self._layout.dated
        return Rows(
            time_ns=np.array(self._times, np.int64) if dated else seconds_to_ns(np.array(self._times, np.float64)),
            input_tokens=np.array(self._inputs, dtype=np.int32),
            output_tokens=np.array(self._outputs, dtype=np.int32),
            session=None if self._found.session is None else np.array(self._sessions, dtype=np.int32),
        )

    def _time(self, field: str, number: int) -> int | float | None:
        text = _plain(field)
        try:
            return self._date_ns(text) if self._layout.dated else _seconds(text)
        except ValueError:
            form = "time such as 2023-11-16 18:15:46.6805900" if self._layout.dated else "time in seconds, such as 12.5"
            fault = Fault(place=self._layout.time, message=f"{_shown(field)} is no {form}", line=number)
            self.faults.append(fault)
            return None

    def _date_ns(self, text: str) -> int:
        minute_ns = self._minutes.get(text[:16])
        if minute_ns is None:
            minute_ns = self._minutes[text[:16]] = _minute_ns(text[:16])
        return minute_ns + _seconds_ns(text[17:])

    def _tokens(self, field: str, column: str, number: int) -> int | None:
        text = _plain(field)
        # Python reads no more than 4,300 digits; ten are enough for any count.
        if text.isascii() and text.isdigit() and len(text.lstrip("0")) <= 10 and int(text) <= MAX_TOKENS:
            return int(text)
        message = f"{_shown(field)} is no whole number of tokens from 0 to {MAX_TOKENS}"
        self.faults.append(Fault(place=column, message=message, line=number))
        return None


def _columns(head: str, source: str, layout: Layout) -> Found:
    """Return where the columns stand; names are compared without quotes, blanks and case."""
    if not head.strip():
        msg = f"{source} is empty: no usable rows"
        raise InputError(msg)
    written = head.rstrip("\r\n").split(",")
    names = [_plain(name).casefold() for name in written]
    wanted = (layout.time, layout.input, layout.output)
    double = [name for name in wanted if names.count(name.casefold()) > 1]
    if double:
        raise SpecError(source, [Fault(place=name, message="stands twice in the header", line=1) for name in double])
    missing = [name for name in wanted if name.casefold() not in names]
    if missing and (sign := _no_csv(head)) is not None:
        raise SpecError(source, [Fault(place="header", message=sign, line=1)])
    if missing:
        message = f"column missing; the columns are {', '.join(repr(name) for name in written)}"
        raise SpecError(source, [Fault(place=name, message=message, line=1) for name in missing])
    time, inputs, outputs = (names.index(name.casefold()) for name in wanted)
    session = layout.session.casefold() if layout.session is not None else None
    at = names.index(session) if session in names else None
    return Found(time, inputs, outputs, at, tuple(names))


def _no_csv(head: str) -> str | None:
    """Return why a first line without the columns is none of a CSV with commas, None where nothing tells."""
    if head.startswith("PK\x03\x04"):
        return "the file is a zip archive; unpack it, or pack it with gzip"
    if head.startswith("\x1f\ufffd"):
        return "the file is packed twice; unpack it once"
    if "\0" in head:
        return "the file is UTF-16 or no text; save it as UTF-8"
    if "\r" in head.rstrip("\r\n"):
        return "lines end in CR alone; LF or CRLF is wanted, e.g. tr '\\r' '\\n'"
    for name, sign in (("tabs", "\t"), ("semicolons", ";")):
        if sign in head and "," not in head:
            return f"columns are separated by {name}; commas are wanted"
    return None


def _shown(text: str) -> str:
    """Return a text as a message shows it, at most 60 characters of it."""
    short = text.strip()
    return repr(short if len(short) <= 60 else f"{short[:57]}...")


def _plain(field: str) -> str:
    return field.strip().strip('"').strip()


def _seconds(text: str) -> float:
    if "_" in text or not text.isascii():  # a number for Python only
        raise ValueError(text)
    seconds = float(text)
    if not (math.isfinite(seconds) and abs(seconds) <= FARTHEST_S):
        raise ValueError(text)
    return seconds


def _minute_ns(text: str) -> int:
    match = _MINUTE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute = (int(part) for part in match.groups())
    if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and minute < 60):
        raise ValueError(text)
    seconds = calendar.timegm((year, month, day, hour, minute, 0))
    if abs(seconds) > FARTHEST_S:
        raise ValueError(text)
    return seconds * NS_PER_S


def _seconds_ns(text: str) -> int:
    match = _SECONDS.fullmatch(text)
    if match is None or int(match[1]) > 60:
        raise ValueError(text)
    return int(match[1]) * NS_PER_S + int((match[2] or "0").ljust(9, "0")) - _zone_ns(match[3])


def _zone_ns(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    sign, hours, minutes = -1 if zone[0] == "-" else 1, int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    return sign * (hours * 3600 + minutes * 60) * NS_PER_S
