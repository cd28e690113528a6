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
from servebench.workload.model import Closed, Lengths, Prompts, Think, Turns, Workload
from servebench.workload.prompts import PromptSet
from servebench.workload.traces import Traces, rows_of

ARRIVALS, PROMPTS, LENGTHS, TURNS, THINK = 0, 1, 2, 3, 4
"""Purposes: the first word of a spawn key. Part of the reproducible form; never renumber."""

BLOCK = 4096
NONE = -1
"""In columns: no length asked for."""
_KEPT_BLOCKS = 4

CLOSED_PHASE, WARMUP_PHASE = "closed", "warmup"
"""Phases of closed load."""

Tokens = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]


class Pairs(NamedTuple):
    """Lengths of some requests, int32, -1 = none, and how many of each were above their cap."""

    input_tokens: Tokens
    max_tokens: Tokens
    clipped_input: int
    clipped_output: int


def generator(seed: int, purpose: int, part: int) -> np.random.Generator:
    """Return the generator of one purpose and one part (phase, epoch or block) of a workload."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, part))))


def limit(law: Lengths, recorded: Tokens | None, count: int) -> tuple[Tokens, int]:
    """Return the lengths that a law gives to `count` requests, and how many of them were clipped to its cap.

    `recorded` are the lengths of the trace's rows; used by kind `trace` only.
    """
    if law.kind != "trace" or recorded is None:
        return np.full(count, NONE if law.tokens is None else law.tokens, dtype=np.int32), 0
    if law.cap is None or law.over == "drop":
        return recorded, 0
    return np.minimum(recorded, np.int32(law.cap)), int(np.count_nonzero(recorded > law.cap))


def fits(law: Lengths, recorded: Tokens) -> npt.NDArray[np.bool_]:
    """Return which rows of a trace a law keeps: all, unless it drops those above its cap."""
    if law.kind != "trace" or law.cap is None or law.over != "drop":
        return np.ones(len(recorded), dtype=np.bool_)
    return recorded <= law.cap


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
        self._pool = _pool(workload.prompts, Traces() if traces is None else traces)
        self._orders: dict[int, Ints] = {}
        self._rows: dict[int, Ints] = {}
        self._turns: dict[int, Ints] = {}
        self._thinks: dict[int, Ints] = {}

    def prompt_ids(self, first: int, count: int) -> Ints:
        """Return the prompts of the requests (of conversations: the first prompts) first, first + 1, ...; int64."""
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

    def lengths(self, first: int, count: int) -> Pairs:
        """Return the lengths of the requests first, first + 1, ... where no row of a trace is replayed."""
        recorded_input = recorded_output = None
        if self._pool is not None:
            rows = _by_block(first, count, BLOCK, self._row_block)
            recorded_input, recorded_output = self._pool[0][rows], self._pool[1][rows]
        inputs, clipped_input = limit(self._prompts.input_tokens, recorded_input, count)
        outputs, clipped_output = limit(self._prompts.output_tokens, recorded_output, count)
        return Pairs(inputs, outputs, clipped_input, clipped_output)

    def ask(
        self, seq: int, *, phase: str, step: int | None = None, measured: bool = True, intended_ns: int | None = None
    ) -> Ask:
        """Return the request number `seq`; what is no draw is passed through."""
        pairs = self.lengths(seq, 1)
        return Ask(
            seq=seq,
            phase=phase,
            step=step,
            measured=measured,
            intended_ns=intended_ns,
            prompt_id=int(self.prompt_ids(seq, 1)[0]),
            input_tokens=known(int(pairs.input_tokens[0])),
            max_tokens=known(int(pairs.max_tokens[0])),
            session=seq,
            turn=0,
        )

    def closed_ask(self, closed: Closed, seq: int) -> Ask:
        """Return request number `seq` of closed load; its pause counts where its user has had an answer before."""
        warmup = seq < closed.warmup_requests
        ask = self.ask(seq, phase=WARMUP_PHASE if warmup else CLOSED_PHASE, measured=not warmup)
        return ask._replace(think_ns=int(self.thinks_ns(closed.think, seq, 1)[0]))

    def _picks(self, first: int, count: int) -> Ints:
        """Return which rows of the prompt files are taken, by the workload's order."""
        if self._prompts.order == "sequential":
            return np.arange(first, first + count, dtype=np.int64) % self._count
        return _by_block(first, count, self._count, self._order)

    def _order(self, epoch: int) -> Ints:
        return _kept(
            self._orders, epoch, lambda: generator(self._seed, PROMPTS, epoch).permutation(np.int64(self._count))
        )

    def _row_block(self, block: int) -> Ints:
        size = 0 if self._pool is None else len(self._pool[0])
        return _kept(self._rows, block, lambda: generator(self._seed, LENGTHS, block).integers(0, size, BLOCK))

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


def _pool(prompts: Prompts, traces: Traces) -> tuple[Tokens, Tokens] | None:
    """Return the rows that lengths are drawn from; None where none come from a trace."""
    if "trace" not in (prompts.input_tokens.kind, prompts.output_tokens.kind):
        return None
    if prompts.lengths_trace is None:
        fault = Fault(place="prompts.trace", message="lengths come from a trace, and none is named")
        raise SpecError("workload", [fault])
    trace = traces.read(prompts.lengths_trace.path)
    rows = rows_of(trace, prompts.lengths_trace)
    inputs, outputs = trace.input_tokens[rows], trace.output_tokens[rows]
    keep = fits(prompts.input_tokens, inputs) & fits(prompts.output_tokens, outputs)
    if not keep.any():
        fault = Fault(place="prompts.trace", message=f"{trace.path} has no row within the caps and the chosen times")
        raise SpecError("workload", [fault])
    return inputs[keep], outputs[keep]


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
