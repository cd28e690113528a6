"""Know how the engine's steps pass in real time: wait out each step, then hand its tokens to the answers.

All tokens of a step are written back to back when it ends, as a real engine's batch does. The end of a step is counted
from the end of the one before, not from when the timer fired, so the pace does not drift with the timer's grain of
1 ms.
"""

import asyncio
from time import monotonic_ns

from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.sim.answers import Answer, Job
from servebench.sim.engine import Engine, StepResult
from servebench.sim.metrics_text import SimMetrics

_LATE_NS = 5 * NS_PER_MS


class EngineRunner:
    """Owns the engine and the answers in progress; everything runs in the server's event loop."""

    def __init__(self, engine: Engine, metrics: SimMetrics) -> None:
        self.engine = engine
        self._metrics = metrics
        self._answers: dict[int, Answer] = {}
        self._jobs: dict[int, Job] = {}
        self._wake = asyncio.Event()

    def submit(self, job: Job, answer: Answer) -> None:
        """Queue a job in the engine. Raises ValueError for one that could never run."""
        prompt = job.asked.prompt
        self.engine.add(job.seq, prompt_tokens=prompt.tokens, answer_tokens=job.plan.tokens, keys=prompt.keys)
        self._answers[job.seq] = answer
        self._jobs[job.seq] = job
        self._wake.set()

    def forget(self, job: Job) -> None:
        """Drop an ended job; whatever of it is still in the engine is aborted there."""
        self.engine.abort(job.seq)
        del self._answers[job.seq], self._jobs[job.seq]

    def abort_all(self) -> None:
        """Give up every answer in progress."""
        for answer in list(self._answers.values()):
            answer.abort()

    async def run(self) -> None:
        """Step for ever; sleeps while there is no work."""
        due_ns = monotonic_ns()
        while True:
            if not self.engine.has_work:
                self._wake.clear()
                await self._wake.wait()
                due_ns = monotonic_ns()
            result = self.engine.step()
            self._note_admitted(result)
            due_ns += result.duration_ns
            await asyncio.sleep(max(0, due_ns - monotonic_ns()) / NS_PER_S)
            late_ns = monotonic_ns() - due_ns
            if late_ns > _LATE_NS:
                due_ns += late_ns
                self._metrics.late_steps += result.duration_ns > 0
            self._deliver(result)

    def _note_admitted(self, result: StepResult) -> None:
        now = monotonic_ns()
        for sequence, cached_tokens in result.admitted:
            job = self._jobs[sequence]
            job.draft.cached_tokens = cached_tokens
            self._metrics.queue.observe(now - job.draft.t_received_ns)
            self._metrics.prompt_tokens += job.asked.prompt.tokens
            self._metrics.cached_tokens += cached_tokens

    def _deliver(self, result: StepResult) -> None:
        answers = self._answers
        self._metrics.generation_tokens += len(result.emitted)
        for sequence, index in result.emitted:
            answer = answers.get(sequence)
            # None = the client left while the step ran.
            if answer is not None:
                answer.token(index)
