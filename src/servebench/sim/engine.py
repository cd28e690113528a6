"""Know what a continuous-batching engine does in one step: whom it runs, what that costs, which tokens come out.

The model follows vLLM's scheduler. Each step has a budget of tokens. Running sequences come first, oldest first: one
token each while decoding, a chunk of the prompt while prefilling. When a sequence needs a KV block and none is free,
the youngest running sequence is preempted: it loses its blocks, goes back to the head of the queue and computes prompt
and answer again later. Then, if nothing was preempted, waiting sequences are admitted in order of arrival while there
are seats, budget and blocks. Leading prompt blocks found in the prefix cache are not computed again; the last prompt
token always is, because its result is the first token. Blocks of answers are not cached.

No clock and no I/O: the caller waits `duration_ns`, then sends what was emitted.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from servebench.sim.blocks import BlockPool
from servebench.sim.parameters import BLOCK_TOKENS, EngineParameters

_JITTER_STREAM = 1


class Token(NamedTuple):
    """One generated token: whose, and its position in the answer from 0."""

    sequence: int
    position: int


class Admission(NamedTuple):
    """A sequence that started to run, with the prompt tokens it found in the prefix cache."""

    sequence: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one step did. `finished` are the sequences whose last token is among `emitted`."""

    duration_ns: int
    emitted: list[Token]
    finished: list[int]
    admitted: list[Admission]
    preempted: list[int]
    prefill_tokens: int
    decode_sequences: int


@dataclass(slots=True, kw_only=True, eq=False)
class _Sequence:
    id: int
    prompt_tokens: int
    answer_tokens: int
    keys: Sequence[bytes]
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    generated: int = 0
    remembered: int = 0
    admitted_before: bool = False

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.generated


@dataclass(slots=True, kw_only=True)
class _Work:
    """What a step under construction will compute."""

    budget: int
    items: list[tuple[_Sequence, int]] = field(default_factory=list)
    admitted: list[Admission] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)

    def put(self, sequence: _Sequence, tokens: int) -> None:
        self.items.append((sequence, tokens))
        self.budget -= tokens


class Engine:
    """Sequences waiting and running on one simulated accelerator."""

    def __init__(self, parameters: EngineParameters, seed: int) -> None:
        self.parameters = parameters
        self.blocks = BlockPool(parameters.kv_blocks)
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._sequences: dict[int, _Sequence] = {}
        self._jitter = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_JITTER_STREAM,)))

    @property
    def running(self) -> int:
        """Sequences that hold KV blocks."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences in the queue, preempted ones included."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether a step would compute anything."""
        return bool(self._running or self._waiting)

    def add(self, sequence: int, *, prompt_tokens: int, answer_tokens: int, keys: Sequence[bytes] = ()) -> None:
        """Queue a sequence. `keys` are those of its full prompt blocks, each covering all tokens before it.

        Raises ValueError for a sequence that could never run: empty, longer than the model allows, or a known id.
        """
        if sequence in self._sequences:
            raise ValueError(f"sequence {sequence} is already here")
        if prompt_tokens < 1 or answer_tokens < 1:
            raise ValueError(f"sequence {sequence} needs at least one prompt and one answer token")
        if prompt_tokens + answer_tokens > self.parameters.max_model_len:
            raise ValueError(f"sequence {sequence} is longer than {self.parameters.max_model_len} tokens")
        item = _Sequence(
            id=sequence,
            prompt_tokens=prompt_tokens,
            answer_tokens=answer_tokens,
            keys=keys[: prompt_tokens // BLOCK_TOKENS],
        )
        self._sequences[sequence] = item
        self._waiting.append(item)

    def abort(self, sequence: int) -> bool:
        """Forget a sequence and free its blocks; return whether it was still here."""
        item = self._sequences.pop(sequence, None)
        if item is None:
            return False
        if item.blocks:
            self._running.remove(item)
            self._drop_blocks(item)
        else:
            self._waiting.remove(item)
        return True

    def step(self) -> StepResult:
        """Run one step; with no work it is empty and lasts 0 ns."""
        work = _Work(budget=self.parameters.max_num_batched_tokens)
        self._schedule_running(work)
        if not work.preempted:
            self._admit(work)
        return self._compute(work)

    def _schedule_running(self, work: _Work) -> None:
        position = 0
        while position < len(self._running) and work.budget:
            sequence = self._running[position]
            tokens = min(sequence.length - sequence.computed, work.budget)
            needed = _blocks_for(sequence.computed + tokens) - len(sequence.blocks)
            # Sequences after `position` have no work yet, so a victim never loses work of this step.
            while needed > self.blocks.free and len(self._running) > position:
                self._preempt(self._running[-1], work)
            if len(self._running) == position:
                return
            if needed > 0:
                sequence.blocks += self.blocks.take(needed)
            work.put(sequence, tokens)
            position += 1

    def _preempt(self, victim: _Sequence, work: _Work) -> None:
        self._running.pop()
        self._drop_blocks(victim)
        self._waiting.appendleft(victim)
        work.preempted.append(victim.id)
        self.preemptions += 1

    def _drop_blocks(self, sequence: _Sequence) -> None:
        self.blocks.release(sequence.blocks)
        sequence.blocks = []
        sequence.computed = 0
        sequence.remembered = 0

    def _admit(self, work: _Work) -> None:
        while self._waiting and work.budget and len(self._running) < self.parameters.max_num_seqs:
            sequence = self._waiting[0]
            shared = self._cached_blocks(sequence)
            cached = len(shared) * BLOCK_TOKENS
            tokens = min(sequence.length - cached, work.budget)
            needed = _blocks_for(cached + tokens) - len(shared)
            if needed > self.blocks.free_without(shared):
                return
            self._waiting.popleft()
            self.blocks.hold(shared)
            sequence.blocks = shared + self.blocks.take(needed)
            sequence.computed = cached
            sequence.remembered = len(shared)
            self._running.append(sequence)
            work.put(sequence, tokens)
            if not sequence.admitted_before:
                sequence.admitted_before = True
                self.prefix_queries += sequence.prompt_tokens
                self.prefix_hits += cached
                work.admitted.append(Admission(sequence.id, cached))

    def _cached_blocks(self, sequence: _Sequence) -> list[int]:
        if not self.parameters.prefix_cache:
            return []
        usable = (sequence.prompt_tokens - 1) // BLOCK_TOKENS
        return self.blocks.match(sequence.keys[:usable])

    def _compute(self, work: _Work) -> StepResult:
        emitted: list[Token] = []
        finished: list[int] = []
        prefill = decode = 0
        for sequence, tokens in work.items:
            if tokens == 1 and sequence.generated:
                decode += 1
            else:
                prefill += tokens
            sequence.computed += tokens
            if sequence.remembered < len(sequence.keys):
                self._remember(sequence)
            if sequence.computed < sequence.length:
                continue
            emitted.append(Token(sequence.id, sequence.generated))
            sequence.generated += 1
            if sequence.generated == sequence.answer_tokens:
                finished.append(sequence.id)
        if finished:
            self._retire(finished)
        return StepResult(
            duration_ns=self._duration_ns(prefill, decode) if work.items else 0,
            emitted=emitted,
            finished=finished,
            admitted=work.admitted,
            preempted=work.preempted,
            prefill_tokens=prefill,
            decode_sequences=decode,
        )

    def _remember(self, sequence: _Sequence) -> None:
        full = min(sequence.computed // BLOCK_TOKENS, len(sequence.keys))
        for position in range(sequence.remembered, full):
            self.blocks.remember(sequence.blocks[position], sequence.keys[position])
        sequence.remembered = full

    def _retire(self, finished: list[int]) -> None:
        for name in finished:
            self._drop_blocks(self._sequences.pop(name))
        self._running = [sequence for sequence in self._running if sequence.blocks]

    def _duration_ns(self, prefill: int, decode: int) -> int:
        cost = self.parameters
        mean = cost.step_base_ns + prefill * cost.prefill_ns_per_token + decode * cost.decode_ns_per_sequence
        if not cost.jitter or not mean:
            return mean
        return round(mean * math.exp(cost.jitter * self._jitter.standard_normal()))


def _blocks_for(tokens: int) -> int:
    return -(-tokens // BLOCK_TOKENS)
