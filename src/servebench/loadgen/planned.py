"""Know which planned request the code of a locustfile is answering, and where the steps of its answer are kept."""

from contextvars import ContextVar
from typing import NamedTuple

import msgspec

from servebench.core.errors import InputError
from servebench.loadgen.span_recorder import SpanRecorder


class Planned(NamedTuple):
    """The request of a workload that a task stands for.

    `body` is what `servebench run` would send by itself: the prompt in the form of the workload's endpoint, with model,
    limit and parameters. `request_id` is that of its row in `requests`; send it as X-Request-Id to find it in logs.
    """

    request_id: str
    body: bytes
    spans: SpanRecorder

    @property
    def prompt(self) -> str:
        """Text of the last message, or of the prompt.

        Raises InputError where the endpoint's body has neither; `body` holds it in the endpoint's own form.
        """
        asked = msgspec.json.decode(self.body)
        messages = asked.get("messages")
        text = messages[-1].get("content") if messages else asked.get("prompt")
        if not isinstance(text, str):
            msg = "this endpoint's request has no messages and no prompt; take what you need from planned().body"
            raise InputError(msg)
        return text


PLANNED: ContextVar[Planned | None] = ContextVar("planned", default=None)


def planned() -> Planned | None:
    """Return the planned request that the calling task answers; None under plain `locust`, and in other greenlets."""
    return PLANNED.get()


def seq_of(request_id: str) -> int:
    """Return the seq in an X-Request-Id, <run>-<seq>-<attempt>."""
    return int(request_id.split("-")[1])
