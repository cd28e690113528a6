"""Know where the time of a request goes at each load level: client, network, the server's queue, its work.

The mean of E2E from the intended time is split into parts that add up to it exactly. What the client stamped is
measured; what the engine counts as queue, prefill and decode is its own mean over the requests that it finished in the
same stretch of time; what is left over is network and client, a difference that also holds the error of all others.
Engines count when a request ends, so the requests of a level are here those that ended in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from servebench.analysis.engine import Source, Telemetry, covered
from servebench.analysis.source import RunData
from servebench.analysis.windows import Level, levels
from servebench.metrics import formulas
from servebench.metrics.columns import BoolArray, FloatArray, RequestColumns, Window, take

BATCH_TIMES: frozenset[str] = frozenset({"tgi"})
"""Dialects whose prefill time is that of a batch: a request waits for the whole of it."""


STREAM_SHARE = 0.5
"""An engine's time of an answer that is below this share of the time that the client saw it stream ended before it."""


class How(StrEnum):
    """Where a number comes from."""

    CLIENT = "measured by the client"
    ENGINE = "the engine's own metric"
    INFERRED = "inferred"


class Part(NamedTuple):
    """A stretch of the mean request, in ms; `basis` says what was measured, or out of which numbers it was inferred."""

    name: str
    ms: float
    how: How
    basis: str


SEND_LAG, CONNECT, QUEUE, FIRST, PREFILL, WORK, DECODE, REST = (
    "send lag",
    "connect",
    "server queue",
    "queue and prefill",
    "prefill",
    "prefill and decode",
    "decode",
    "network and client",
)
WAIT = "until the first token"
ANSWER = "until the answer"
ORDER: tuple[str, ...] = (SEND_LAG, CONNECT, QUEUE, FIRST, WAIT, ANSWER, PREFILL, WORK, DECODE, REST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One level. `n` ok requests ended in it, `error_ms` is the standard error of their mean.

    `parts` add up to `total_ms`. `engine_n`: requests that the engines say ended in that time, None = not told. TTFT
    are means over requests whose first token came in that time, None = not told.
    """

    level: Level
    window: Window
    load_per_s: float
    n: int
    total_ms: float
    error_ms: float
    parts: tuple[Part, ...]
    engine_n: float | None
    client_ttft_ms: float | None
    server_ttft_ms: float | None

    def ms(self, name: str) -> float | None:
        """Return a part's length, None where the level has no such part."""
        return next((part.ms for part in self.parts if part.name == name), None)


class EngineMeans(NamedTuple):
    """Mean times of the engines over a stretch, ms per request; None = not told. `work`: prefill and decode in one."""

    ttft: float | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    work: float | None = None
    e2e: float | None = None


class ClientMeans(NamedTuple):
    """Mean times of the client's requests, ms; `first` and `decode` None = the answers came in one piece."""

    lag: float
    connect: float
    service: float
    first: float | None
    decode: float | None


def splits(run: RunData, telemetry: Telemetry) -> tuple[Split, ...]:
    """Return the split of each measured level in which an ok request ended, in order of time."""
    found = (_split(run, telemetry, level) for level in levels(run) if level.measured)
    return tuple(split for split in found if split is not None)


def _split(run: RunData, telemetry: Telemetry, level: Level) -> Split | None:
    window = _read_window(telemetry, level.window)
    c = run.columns
    ended = c.ok & _inside(c.end_ns, window)
    if not ended.any():
        return None
    whole = take(c, ended)
    begun = np.where(np.isnan(whole.intended_ns), whole.dispatched_ns, whole.intended_ns)
    total = (whole.end_ns - np.where(np.isnan(begun), whole.sent_ns, begun)) / 1e6
    means = engine_means(telemetry, window, int(np.sum(_inside(c.end_ns, window))))
    parts = parts_of(means, _client_means(whole, total), telemetry.engines)
    first = _inside(c.events.first_token_ns, window)
    return Split(
        level=level,
        window=window,
        load_per_s=int(np.sum(_inside(c.sent_ns, level.window))) / level.window.seconds,
        n=len(total),
        total_ms=float(np.mean(total)),
        error_ms=float(np.std(total)) / len(total) ** 0.5,
        parts=parts,
        engine_n=telemetry.growth("e2e_n", window),
        client_ttft_ms=_mean((c.events.first_token_ns - c.sent_ns)[first] / 1e6),
        server_ttft_ms=means.ttft,
    )


def _read_window(telemetry: Telemetry, window: Window) -> Window:
    """Return the stretch between the first and last reading of the engines in a window; the window where none was read.

    Counters are exact at a reading only, and the client's requests must be those of the same time.
    """
    tracks = [source.tracks["e2e_n"] for source in telemetry.engines if "e2e_n" in source.tracks]
    tracks = tracks or [track for source in telemetry.engines for track in list(source.tracks.values())[:1]]
    read = [one for track in tracks if (one := covered(track, window)) is not None]
    if not read:
        return window
    inside = Window(max(one.start_ns for one in read), min(one.end_ns for one in read))
    return inside if inside.end_ns > inside.start_ns else window


def _inside(times: FloatArray, window: Window) -> BoolArray:
    return np.asarray((times > window.start_ns) & (times <= window.end_ns), dtype=bool)


def _mean(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.mean(known)) if len(known) else None


def _client_means(c: RequestColumns, total_ms: FloatArray) -> ClientMeans:
    service = (c.end_ns - c.sent_ns) / 1e6
    connect = np.nan_to_num((c.connect_end_ns - c.connect_start_ns) / 1e6)  # a connection that was there took no time
    first = formulas.ttft_ns(c) / 1e6
    decode = (c.events.last_token_ns - c.events.first_token_ns) / 1e6
    streamed = not np.isnan(first).any()  # one number for all: half of it would not add up
    return ClientMeans(
        lag=float(np.mean(total_ms - service - connect)),
        connect=float(np.mean(connect)),
        service=float(np.mean(service)),
        first=float(np.mean(first)) if streamed else None,
        decode=float(np.mean(decode)) if streamed else None,
    )


def engine_means(telemetry: Telemetry, window: Window, ended: int) -> EngineMeans:
    """Return what the engines tell of a stretch in which `ended` requests of the client ended.

    Counters of seconds that come without a count of requests (llama.cpp) are divided by `ended`.
    """

    def each(name: str) -> float | None:
        told = telemetry.mean_ms(name, window)
        if told is not None or telemetry.growth(f"{name}_n", window) is not None:
            return told
        seconds = telemetry.growth(f"{name}_s", window)
        return None if seconds is None or not ended else 1e3 * seconds / ended

    return EngineMeans(
        ttft=each("ttft"),
        queue=each("queue"),
        prefill=each("prefill"),
        decode=each("decode"),
        work=each("compute"),
        e2e=each("e2e"),
    )


def parts_of(engine: EngineMeans, client: ClientMeans, engines: tuple[Source, ...] = ()) -> tuple[Part, ...]:
    """Return the parts of the mean request in order of time; they add up to lag + connect + service."""
    engine = _of_whole_answers(engine, client)
    known = [
        Part(SEND_LAG, client.lag, How.CLIENT, "sent - intended, without connecting"),
        Part(CONNECT, client.connect, How.CLIENT, "TCP and TLS of new connections, over all requests"),
        *_server_parts(engine, client, batch=any(source.dialect in BATCH_TIMES for source in engines)),
    ]
    rest = client.lag + client.connect + client.service - sum(part.ms for part in known)
    return (*known, Part(REST, rest, How.INFERRED, "what is left of E2E"))


def _of_whole_answers(engine: EngineMeans, client: ClientMeans) -> EngineMeans:
    """Leave out the times that ended before the answer did.

    Triton is done with a request of a decoupled model as soon as the model has taken it; its answer streams after that.
    """
    streamed = STREAM_SHARE * (client.decode or 0.0)

    def kept(told: float | None) -> float | None:
        return None if told is None or told < streamed else told

    return engine._replace(work=kept(engine.work), e2e=kept(engine.e2e))


def _server_parts(engine: EngineMeans, client: ClientMeans, *, batch: bool) -> Iterator[Part]:
    if engine.queue is not None:
        yield Part(QUEUE, engine.queue, How.ENGINE, "time in the queue")
    if engine.work is not None and engine.prefill is None and engine.decode is None:
        yield Part(WORK, engine.work, How.ENGINE, "time in which the model computed")
        return
    first = _prefill(engine, client, batch=batch) or _unseen(engine, client)
    if first is not None:
        yield first
    if engine.decode is not None:
        yield Part(DECODE, engine.decode, How.ENGINE, "time of generation")
    elif engine.e2e is not None and engine.ttft is not None:
        yield Part(DECODE, engine.e2e - engine.ttft, How.INFERRED, "the engine's E2E less its TTFT")
    elif client.decode is not None:
        yield Part(DECODE, client.decode, How.CLIENT, "last less first token, as they arrived")


def _prefill(engine: EngineMeans, client: ClientMeans, *, batch: bool) -> Part | None:
    """Return what lies between the queue and the first token; None where the engine does not tell it apart."""
    if engine.prefill is not None:
        return Part(PREFILL, engine.prefill, How.ENGINE, "time of a batch" if batch else "time of prompt processing")
    if engine.queue is None:
        return None
    if engine.ttft is not None:
        return Part(PREFILL, engine.ttft - engine.queue, How.INFERRED, "the engine's TTFT less its queue")
    if engine.e2e is not None and client.decode is not None:
        left = engine.e2e - engine.queue - client.decode
        return Part(PREFILL, left, How.INFERRED, "the engine's E2E less its queue and the client's decode")
    return None


def _unseen(engine: EngineMeans, client: ClientMeans) -> Part | None:
    """Return all that lies before the first token and nobody told apart; None: in one piece, behind a queue."""
    if engine.queue is not None:
        left = None if client.first is None else client.first - engine.queue
        return None if left is None else Part(WAIT, left, How.INFERRED, "the client's TTFT less the engine's queue")
    if engine.ttft is not None:
        return Part(FIRST, engine.ttft, How.ENGINE, "TTFT; the queue is not told apart")
    if client.first is not None:
        return Part(WAIT, client.first, How.CLIENT, "TTFT: network, queue and prefill, which nobody told apart")
    return Part(ANSWER, client.service, How.CLIENT, "the whole answer, which came in one piece")
