"""Know ServeGen's descriptions of clients, and generate the requests that they describe.

A folder holds for each client `chunk-<n>-trace.csv`, without a header: start of a window of 600 s, rate per s, CV,
law of the gaps (Gamma, Weibull, or empty = idle), its shape and scale; and `chunk-<n>-dataset.json`: for each 6 hours
the probabilities of token counts, written as Python dicts within JSON texts. Weibull scales in these files give a mean
gap of 1.08 to 1.23 over the rate; here the rate counts and the scale is not used. A window without lengths takes those
of the nearest one that has them. Input and output lengths are drawn independently: the files do not pair them.

Every client and window has a generator of its own, so a slice holds the same requests as the whole.
"""

import csv
import json
import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.errors import Fault, InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.arrivals import arrivals
from servebench.workload.model import Arrivals, Segment, TraceSlice
from servebench.workload.rows import MAX_FAULTS, MAX_TOKENS, Ints, Tokens, Trace
from servebench.workload.seeds import SERVEGEN, generator

WINDOW_S = 600
_LAWS = {"gamma", "weibull", ""}
_MOST_WINDOWS = 100_000
_NUMBER = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_PAIRS = re.compile(rf"\{{(?:{_NUMBER}: ?{_NUMBER}(?:, ?(?=\d)|(?=\}})))*\}}")
_FILE = re.compile(r"chunk-(\d+)-trace\.csv")


class Window(NamedTuple):
    """One window of one client; `shape` of the law `law`. Idle windows are left out."""

    start_s: int
    rate_per_s: float
    law: str
    shape: float


class Lengths(NamedTuple):
    """Token counts of one stretch of a data set, and the running sum of their probabilities."""

    start_s: int
    tokens: Tokens
    reached: npt.NDArray[np.float64]


class Client(NamedTuple):
    """A client of a folder."""

    number: int
    windows: tuple[Window, ...]
    end_s: int
    inputs: tuple[Lengths, ...]
    outputs: tuple[Lengths, ...]


def read_servegen(folder: Path, part: TraceSlice, seed: int) -> Trace:
    """Return the requests that the clients of a folder make in the windows which a slice touches.

    Times count from the beginning of the first window of the files, not from the first request.
    Raises SpecError with the faults of a file, and InputError where there is no client, or none is active.
    """
    clients = [read_client(folder, number) for number in chosen(folder, part)]
    end_s = math.inf if part.length_ns is None else (part.start_ns + part.length_ns) / NS_PER_S
    times: list[Ints] = [np.empty(0, dtype=np.int64)]
    inputs: list[Tokens] = [np.empty(0, dtype=np.int32)]
    outputs: list[Tokens] = [np.empty(0, dtype=np.int32)]
    for client in clients:
        for window in client.windows:
            if window.start_s + WINDOW_S > part.start_ns / NS_PER_S and window.start_s < end_s:
                draws = generator(seed, SERVEGEN, client.number * _MOST_WINDOWS + window.start_s // WINDOW_S)
                offset_ns = _times_ns(window, draws)
                times.append(offset_ns + window.start_s * NS_PER_S)
                inputs.append(_drawn(client.inputs, window, len(offset_ns), draws))
                outputs.append(_drawn(client.outputs, window, len(offset_ns), draws))
    offset_ns = np.concatenate(times)
    if not len(offset_ns):
        msg = f"{folder} has no usable rows: no chosen client is active in the chosen time"
        raise InputError(msg)
    order = np.argsort(offset_ns, kind="stable")
    return Trace(
        path=part.path,
        offset_ns=offset_ns[order],
        input_tokens=np.concatenate(inputs)[order],
        output_tokens=np.concatenate(outputs)[order],
        end_ns=max(client.end_s for client in clients) * NS_PER_S,
    )


def chosen(folder: Path, part: TraceSlice) -> tuple[int, ...]:
    """Return the numbers of the clients that a slice wants, in order.

    Raises InputError where one of them, or any, is missing.
    """
    there = sorted(int(match[1]) for path in folder.glob("chunk-*-trace.csv") if (match := _FILE.fullmatch(path.name)))
    missing = [number for number in part.clients if number not in there]
    if missing or not there:
        found = f"there are {', '.join(map(str, there))}" if there else "there is no chunk-<n>-trace.csv"
        msg = f"{folder} has no client {missing[0]}; {found}" if missing else f"{folder}: {found}"
        raise InputError(msg)
    return tuple(sorted(set(part.clients))) or tuple(there)


def read_client(folder: Path, number: int) -> Client:
    """Return one client of a folder.

    Raises SpecError with the faults of its files, and InputError where one cannot be read.
    """
    windows, end_s = _windows(folder / f"chunk-{number}-trace.csv")
    inputs, outputs = _dataset(folder / f"chunk-{number}-dataset.json")
    return Client(number, windows, end_s, inputs, outputs)


def _times_ns(window: Window, draws: np.random.Generator) -> Ints:
    gamma = window.law == "gamma"
    law = Arrivals(process="gamma", cv=window.shape**-0.5) if gamma else Arrivals(process="weibull", shape=window.shape)
    level = Segment(duration_ns=WINDOW_S * NS_PER_S, from_per_s=window.rate_per_s, to_per_s=window.rate_per_s)
    return arrivals(law, (level,), draws).offset_ns


def _drawn(lengths: tuple[Lengths, ...], window: Window, count: int, draws: np.random.Generator) -> Tokens:
    nearest = min(lengths, key=lambda stretch: abs(stretch.start_s - window.start_s))
    return nearest.tokens[np.searchsorted(nearest.reached, draws.random(count), side="right")]


def _windows(path: Path) -> tuple[tuple[Window, ...], int]:
    windows: list[Window] = []
    faults: list[Fault] = []
    end_s = 0
    for line, fields in enumerate(csv.reader(_text(path).splitlines()), start=1):
        try:
            window = _window(fields)
        except ValueError as error:
            faults.append(Fault(place="row", message=f"{','.join(fields)!r}: {error}", line=line))
            continue
        end_s = max(end_s, window.start_s + WINDOW_S)
        if window.rate_per_s > 0 and window.law:
            windows.append(window)
    if faults:
        raise SpecError(str(path), faults[:MAX_FAULTS])
    return tuple(windows), end_s


def _window(fields: list[str]) -> Window:
    """Return a row as a window; raises ValueError, in words, for a row that is none."""
    if len(fields) != 6:
        msg = "6 fields are wanted: start, rate, CV, law, shape, scale"
        raise ValueError(msg)
    start, rate, shape = float(fields[0]), float(fields[1]), float(fields[4])
    law = fields[3].strip().casefold()
    if law not in _LAWS:
        msg = f"the law {fields[3]!r} is neither Gamma nor Weibull"
        raise ValueError(msg)
    if not (0 <= start < WINDOW_S * _MOST_WINDOWS and 0 <= rate <= 1e6 and (not law or 1e-4 <= shape <= 1e4)):
        msg = "start, rate or shape is out of bounds"
        raise ValueError(msg)
    return Window(int(start), rate, law, shape)


def _dataset(path: Path) -> tuple[tuple[Lengths, ...], tuple[Lengths, ...]]:
    """Return the lengths of inputs and of outputs, by stretches that have some."""
    try:
        stretches = json.loads(_text(path))
        columns = tuple(
            tuple(
                found
                for start, fields in stretches.items()
                if (found := _lengths(int(start), fields[field])) is not None
            )
            for field in ("input_tokens", "output_tokens")
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        fault = Fault(place="dataset", message=f"no token counts as ServeGen writes them: {error!r}"[:200])
        raise SpecError(str(path), [fault]) from error
    if not all(columns):
        raise SpecError(str(path), [Fault(place="dataset", message="holds no token counts")])
    return columns[0], columns[1]


def _lengths(start_s: int, literal: str) -> Lengths | None:
    """Return the lengths in a dict literal; None where it is empty. Raises ValueError where it is no such thing."""
    if not _PAIRS.fullmatch(literal):
        msg = f"{literal[:60]!r} is no dict of numbers"
        raise ValueError(msg)
    # Not evaluated: the pattern leaves numbers, colons and commas, and splitting them is ten times as fast.
    numbers = literal.strip(" {}").replace(":", ",").split(",")
    if numbers == [""]:
        return None
    tokens, weights = (np.array(numbers[at::2], dtype=np.float64) for at in (0, 1))
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        msg = "probabilities must be finite, not negative, and not all 0"
        raise ValueError(msg)
    reached = np.cumsum(weights) / weights.sum()
    reached[-1] = 1.0
    # A length of 0 is no request; the shortest that can be sent is 1.
    return Lengths(start_s, np.clip(np.rint(tokens), 1, MAX_TOKENS).astype(np.int32), reached)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read {path}: {error}"
        raise InputError(msg) from error
