"""Know when an answer's tokens are counted by the client itself: off the hub, and only where the server's count lacks.

With a tokenizer file every answer is counted, so that the two counts can be compared; without one only the answers for
which the server gave no usage are.
"""

import dataclasses
from pathlib import Path

from gevent.threadpool import ThreadPool

from servebench.core.outcomes import CountedSource, Outcome, TokenSource
from servebench.core.records import Answer, RequestRecord
from servebench.workload.counting import TokenCounter, count_answer, token_counter


class AnswerCounter:
    """One counter and one native thread for a worker's runs.

    Making it takes 0.3 s, in most of which the hub stands still, and 49 MiB without a tokenizer file. It is made before
    a run whose dialect has no counts, else with the first answer without one: servers that report usage never cost it.
    """

    def __init__(self, tokenizer: Path | None) -> None:
        self._tokenizer = tokenizer
        self._counter: TokenCounter | None = None
        self._pool: ThreadPool | None = None

    @property
    def ready(self) -> bool:
        """Whether the next answer is counted without the counter being made first."""
        return self._counter is not None

    def prepare(self, *, needed: bool) -> None:
        """Make the counter where answers will be counted for sure: there is a tokenizer file, or it is `needed`.

        Blocks. Raises InputError where the file cannot be used.
        """
        if (needed or self._tokenizer is not None) and self._counter is None:
            self._counter = token_counter(self._tokenizer)

    def wants(self, answer: Answer) -> bool:
        """Whether this answer is to be counted."""
        if answer.text is None or answer.outcome is not Outcome.OK:
            return False
        return self._tokenizer is not None or answer.token_source is not TokenSource.USAGE

    def counted(self, record: RequestRecord) -> RequestRecord:
        """Return the record with the client's own count; blocks the calling greenlet, not the hub."""
        if self._pool is None:
            self._pool = ThreadPool(1)
        tokens, source = self._pool.apply(self._count, (record.answer,))
        return dataclasses.replace(record, output_tokens_counted=tokens, counted_source=source)

    def _count(self, answer: Answer) -> tuple[int | None, CountedSource]:
        if self._counter is None:
            self._counter = token_counter(self._tokenizer)
        return count_answer(self._counter, answer), self._counter.source
