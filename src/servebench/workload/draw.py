"""Know which prompt and which lengths a request gets, from the seed and the request's number alone.

Prompts: `sequential` is seq modulo the number of prompts; `shuffled` deals all prompts out in random order, then all of
them again in another order, so each is used equally often. Lengths `from: trace`: (input, output) pairs of rows drawn
with replacement from the lengths trace, in blocks. Purposes have generators of their own, so a change of the arrivals
changes no prompt.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.core.errors import Fault, SpecError
from servebench.core.records import Ask
from servebench.workload.lengths import DRAWN, NONE, Tokens, capped, drawn_lengths, factor_for, fits
from servebench.workload.model import Closed, Lengths, Prompts, Think, Turns, Workload
from servebench.workload.phase_names import CLOSED, CLOSED_WARMUP
from servebench.workload.prompts import PromptSet
from servebench.workload.rows import Trace
from servebench.workload.seeds import INPUTS, LENGTHS, OUTPUTS, PROMPTS, THINK, TURNS, generator
from servebench.workload.traces import Traces, rows_of

BLOCK = 4096
_KEPT_BLOCKS = 4
"""Phases of closed load."""

Ints = npt.NDArray[np.int64]


class Pairs(NamedTuple):
    """Lengths of some requests, int32, -1 = none; `changed` counts by reason those that were above their cap."""

    input_tokens: Tokens
    max_tokens: Tokens
    changed: dict[str, int]


class Recorded(NamedTuple):
    """Lengths of a trace's rows, and what `over: scale` multiplies each column by."""

    input_tokens: Tokens
    output_tokens: Tokens
    input_factor: float
    output_factor: float


class Pool(NamedTuple):
    """Rows of a trace that requests are drawn from: their numbers in the trace, and their lengths."""

    rows: Ints
    lengths: Recorded


def recorded(prompts: Prompts, trace: Trace, rows: Ints) -> Recorded:
    """Return the lengths of some rows of a trace, before their caps."""
    inputs, outputs = trace.input_tokens[rows], trace.output_tokens[rows]
    return Recorded(
        inputs, outputs, factor_for(prompts.input_tokens, inputs), factor_for(prompts.output_tokens, outputs)
    )


class Drawer:
    """Draws prompts and lengths by seq; the same answers in any order of asking, on any process.

    Rows that `over: drop` excludes are not drawn, so a drawn request is never dropped.
    """

    def __init__(self, workload: Workload, prompts: PromptSet | None = None, traces: Traces | None = None) -> None:
        """Read what the draws need; pass prompts and traces where they are loaded already.

        Raises SpecError or InputError for prompt and trace files that are not usable.
        """
        self._seed = workload.seed
        self._prompts = workload.prompts
        loaded = PromptSet.load(workload.prompts) if prompts is None else prompts
        self._starts = loaded.starts
        self._count = len(self._starts) - 1
        self._replies = loaded.replies
        self._of_trace = is_of_trace(workload.prompts)
        self._pool = _pool(workload.prompts, Traces(workload.seed) if traces is None else traces)
        self._orders: dict[int, Ints] = {}
        self._rows: dict[int, Ints] = {}
        self._turns: dict[int, Ints] = {}
        self._thinks: dict[int, Ints] = {}
        self._lengths: dict[int, dict[int, Ints]] = {}
        if workload.prompts.order == "zipf":
            exponent = 1.0 if workload.prompts.zipf_exponent is None else workload.prompts.zipf_exponent
            weights = np.arange(1, self._count + 1, dtype=np.float64) ** -exponent
            self._reached = np.cumsum(weights)[:-1] / weights.sum()
            self._ranked = generator(self._seed, PROMPTS, 0).permutation(np.int64(self._count))

    def prompt_ids(self, first: int, count: int) -> Ints:
        """Return the prompts of the requests (of conversations: the first prompts) first, first + 1, ...; int64."""
        if self._of_trace and self._pool is not None:
            return self._pool.rows[self._pool_picks(first, count)]
        found: Ints = self._starts[self._picks(first, count)]
        return found

    def turns(self, first: int, count: int) -> Ints:
        """Return the number of turns of the conversations first, first + 1, ...; int64, at least 1.

        1 where there are no conversations, and where a trace says it.
        """
        talk = self._prompts.conversation
        if talk is None or talk.turns.law == "trace":
            return np.ones(count, dtype=np.int64)
        high = np.iinfo(np.int64).max if talk.turns.high is None else talk.turns.high
        if talk.turns.law == "prompt":
            picks = self._picks(first, count)
            turns: Ints = np.minimum(self._starts[picks + 1] - self._starts[picks], high)
            return turns
        law = talk.turns
        return np.minimum(_by_block(first, count, BLOCK, lambda block: self._turn_block(law, block)), high)

    def thinks_ns(self, think: Think, first: int, count: int) -> Ints:
        """Return the pauses before the requests first, first + 1, ... as drawn; int64 ns."""
        if think.law != "exponential":
            return np.full(count, think.mean_ns, dtype=np.int64)
        return _by_block(first, count, BLOCK, lambda block: self._think_block(think, block))

    def lengths(self, first: int, count: int, prompt_id: Ints, rows: Recorded | None = None) -> Pairs:
        """Return the lengths of the requests first, first + 1, ..., which have these prompts.

        `rows` are those of a replayed trace; None: what comes from a trace is drawn from its pool.
        """
        if rows is None and self._pool is not None:
            pool, picks = self._pool.lengths, self._pool_picks(first, count)
            rows = pool._replace(input_tokens=pool.input_tokens[picks], output_tokens=pool.output_tokens[picks])
        changed: dict[str, int] = {}
        inputs = outputs = None
        if rows is not None:
            inputs, outputs = (rows.input_tokens, rows.input_factor), (rows.output_tokens, rows.output_factor)
        input_tokens = self._side("input", first, count, inputs, changed)
        if self._prompts.output_tokens.kind == "reply" and self._replies is not None:
            max_tokens = self._replies[prompt_id]
        else:
            max_tokens = self._side("output", first, count, outputs, changed)
        return Pairs(input_tokens, max_tokens, changed)

    def ask(
        self, seq: int, *, phase: str, step: int | None = None, measured: bool = True, intended_ns: int | None = None
    ) -> Ask:
        """Return the request number `seq`; what is no draw is passed through."""
        prompt_id = self.prompt_ids(seq, 1)
        pairs = self.lengths(seq, 1, prompt_id)
        return Ask(
            seq=seq,
            phase=phase,
            step=step,
            measured=measured,
            intended_ns=intended_ns,
            prompt_id=int(prompt_id[0]),
            input_tokens=known(int(pairs.input_tokens[0])),
            max_tokens=known(int(pairs.max_tokens[0])),
            session=seq,
            turn=0,
        )

    def closed_ask(self, closed: Closed, seq: int, *, session: int | None = None, turn: int = 0) -> Ask:
        """Return request number `seq` of closed load, a turn of the conversation that began with request `session`.

        None: it begins one. A conversation has the draws of the number that it begins with.
        """
        talk, first = self._prompts.conversation, seq if session is None else session
        warmup = seq < closed.warmup_requests
        in_file = talk is not None and talk.turns.law == "prompt"
        prompt_id = self.prompt_ids(first, 1) + turn if in_file else self.prompt_ids(seq, 1)
        pairs = self.lengths(seq, 1, prompt_id)
        return Ask(
            seq=seq,
            phase=CLOSED_WARMUP if warmup else CLOSED,
            step=None,
            measured=not warmup,
            intended_ns=None,
            prompt_id=int(prompt_id[0]),
            input_tokens=known(int(pairs.input_tokens[0])),
            max_tokens=known(int(pairs.max_tokens[0])),
            session=first,
            turn=turn,
        )

    def _picks(self, first: int, count: int) -> Ints:
        """Return which rows of the prompt files are taken, by the workload's order."""
        if self._prompts.order == "sequential":
            return np.arange(first, first + count, dtype=np.int64) % self._count
        if self._prompts.order == "zipf":
            return _by_block(first, count, BLOCK, self._zipf_block)
        return _by_block(first, count, self._count, self._order)

    def _order(self, epoch: int) -> Ints:
        return _kept(
            self._orders, epoch, lambda: generator(self._seed, PROMPTS, epoch).permutation(np.int64(self._count))
        )

    def _pool_picks(self, first: int, count: int) -> Ints:
        return _by_block(first, count, BLOCK, self._row_block)

    def _row_block(self, block: int) -> Ints:
        size = 0 if self._pool is None else len(self._pool.rows)
        return _kept(self._rows, block, lambda: generator(self._seed, LENGTHS, block).integers(0, size, BLOCK))

    def _zipf_block(self, block: int) -> Ints:
        """Return prompts whose rank r is taken in proportion to r^-exponent; ranks are dealt out at random."""

        def make() -> Ints:
            return self._ranked[np.searchsorted(self._reached, generator(self._seed, PROMPTS, block + 1).random(BLOCK))]

        return _kept(self._orders, block, make)

    def _side(
        self, side: str, first: int, count: int, rows: tuple[Tokens, float] | None, changed: dict[str, int]
    ) -> Tokens:
        law = self._prompts.input_tokens if side == "input" else self._prompts.output_tokens
        if law.kind in DRAWN:
            purpose = INPUTS if side == "input" else OUTPUTS
            tokens, factor = self._drawn(law, purpose, first, count), 1.0
        elif law.kind == "trace" and rows is not None:
            tokens, factor = rows
        else:
            return np.full(count, NONE if law.tokens is None else law.tokens, dtype=np.int32)
        tokens, number = capped(law, tokens, factor)
        if number:
            changed[f"{'scaled' if law.over == 'scale' else 'clipped'}_{side}"] = number
        return tokens

    def _drawn(self, law: Lengths, purpose: int, first: int, count: int) -> Tokens:
        kept = self._lengths.setdefault(purpose, {})

        def block(number: int) -> Ints:
            draws = generator(self._seed, purpose, number)
            return _kept(kept, number, lambda: drawn_lengths(law, BLOCK, draws).astype(np.int64))

        return _by_block(first, count, BLOCK, block).astype(np.int32)

    def _turn_block(self, law: Turns, block: int) -> Ints:
        def make() -> Ints:
            draws = generator(self._seed, TURNS, block)
            if law.law == "geometric" and law.mean is not None:
                return draws.geometric(1 / law.mean, BLOCK)
            return draws.integers(law.low, law.low if law.high is None else law.high, BLOCK, endpoint=True)

        return _kept(self._turns, block, make)

    def _think_block(self, think: Think, block: int) -> Ints:
        def make() -> Ints:
            draws = generator(self._seed, THINK, block).standard_exponential(BLOCK)
            return np.rint(draws * think.mean_ns).astype(np.int64)

        return _kept(self._thinks, block, make)


def known(tokens: int) -> int | None:
    """Return a column's value as a record has it: None where no length is asked for."""
    return None if tokens == NONE else tokens


def is_of_trace(prompts: Prompts) -> bool:
    """Say whether prompts are made of the blocks of a trace's rows."""
    return any(source.kind == "trace" for source in prompts.sources)


def _pool(prompts: Prompts, traces: Traces) -> Pool | None:
    """Return the rows that lengths are drawn from; None where none come from a trace."""
    if "trace" not in (prompts.input_tokens.kind, prompts.output_tokens.kind):
        return None
    if prompts.lengths_trace is None:
        fault = Fault(place="prompts.trace", message="lengths come from a trace, and none is named")
        raise SpecError("workload", [fault])
    trace = traces.read(prompts.lengths_trace)
    chosen = rows_of(trace, prompts.lengths_trace)
    inputs, outputs = trace.input_tokens[chosen], trace.output_tokens[chosen]
    keep = fits(prompts.input_tokens, inputs) & fits(prompts.output_tokens, outputs)
    if not keep.any():
        fault = Fault(place="prompts.trace", message=f"{trace.path} has no row within the caps and the chosen times")
        raise SpecError("workload", [fault])
    rows = np.flatnonzero(keep) + chosen.start
    return Pool(rows, recorded(prompts, trace, rows))


def _by_block(first: int, count: int, size: int, block: Callable[[int], Ints]) -> Ints:
    """Return entries first .. first + count of a sequence that is made in blocks of `size`."""
    parts = []
    at, end = first, first + count
    while at < end:
        number, offset = divmod(at, size)
        take = min(size - offset, end - at)
        parts.append(block(number)[offset : offset + take])
        at += take
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _kept(blocks: dict[int, Ints], number: int, make: Callable[[], Ints]) -> Ints:
    """Return a block, made once while it is in use: leases walk through a few blocks at a time."""
    block = blocks.get(number)
    if block is None:
        while len(blocks) >= _KEPT_BLOCKS:
            del blocks[next(iter(blocks))]
        block = blocks[number] = make()
    return block
