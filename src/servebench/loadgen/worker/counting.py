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
    """One counter and one native thread for a worker's runs. The counter is made when it is first needed.

    Making it takes 0.3 s and 49 MiB without a tokenizer file, which servers that report usage never cost.
    """

    def __init__(self, tokenizer: Path | None) -> None:
        self._tokenizer = tokenizer
        self._counter: TokenCounter | None = None
        self._pool: ThreadPool | None = None

    def prepare(self) -> None:
        """Load the tokenizer file, if there is one; blocks. Raises InputError where it cannot be used."""
        if self._tokenizer is not None and self._counter is None:
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
