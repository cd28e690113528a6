"""Know the records that cross package borders on the request path.

Times inside a process are int64 nanoseconds of CLOCK_MONOTONIC; the recorder maps them to the run clock.
None means "did not happen" or "not known", never 0.
"""

from array import array
from dataclasses import dataclass
from typing import NamedTuple

from servebench.core.outcomes import CountedSource, Outcome, TokenSource


class Ask(NamedTuple):
    """One planned request: a row of the schedule.

    `intended_ns` is on the run clock (0 = planned start), None for closed load and for later turns of a conversation.
    `input_tokens` and `max_tokens` are what was asked for; None = as long as the prompt is / the server's default.
    `think_ns` is the pause between the end of the answer before it, of the same conversation or the same closed-loop
    user, and this request; None where it waits for no answer.
    """

    seq: int
    phase: str
    step: int | None
    measured: bool
    intended_ns: int | None
    prompt_id: int
    input_tokens: int | None
    max_tokens: int | None
    session: int
    turn: int
    think_ns: int | None = None


class ToolCall(NamedTuple):
    """One tool that an answer calls; `arguments` is JSON text as it came, maybe none."""

    name: str
    arguments: str


class Message(NamedTuple):
    """One chat message of a prompt."""

    role: str
    content: str


@dataclass(slots=True, kw_only=True)
class Chunks:
    """Per-event columns of one response; all arrays have one length, in order of arrival.

    `ns` int64 monotonic stamp of the read that completes the event. `delay_ns` int32, how late the client read it;
    -1 = no kernel stamp, then `ns` is the client's own clock. `kind` int8, index into CHUNK_KINDS. `tokens` int32,
    -1 = unknown. `read` int32, number of the read from 0. `choice` int8.
    """

    ns: "array[int]"
    delay_ns: "array[int]"
    kind: "array[int]"
    tokens: "array[int]"
    read: "array[int]"
    choice: "array[int]"

    @classmethod
    def empty(cls) -> "Chunks":
        """Return chunk columns without events."""
        return cls(
            ns=array("q"), delay_ns=array("i"), kind=array("b"), tokens=array("i"), read=array("i"), choice=array("b")
        )

    def __len__(self) -> int:
        return len(self.ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a response said, as the wire understood it.

    `end_ns` is the read that holds the terminal event, else the end of the body or the moment of giving up.
    `chunks` is None when no response head arrived. `text` is the answer text of choice 0, None where it was not kept or
    the answer is no text (vectors); `asides` is what else was generated: reasoning, tool calls, refusals and other
    choices, one text for each choice and kind. `tools` are the tools that choice 0 calls, which `asides` holds too.
    """

    outcome: Outcome
    error_class: str | None = None
    error_message: str | None = None
    http_status: int | None = None
    headers_ns: int | None = None
    end_ns: int
    finish_reason: str | None = None
    streamed: bool | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: TokenSource | None = None
    retry_after_s: float | None = None
    response_bytes: int = 0
    chunks: Chunks | None = None
    text: str | None = None
    asides: tuple[str, ...] = ()
    tools: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStamps:
    """When the client did what, monotonic ns; None = did not happen."""

    dispatched_ns: int | None = None
    connect_start_ns: int | None = None
    connect_end_ns: int | None = None
    sent_ns: int | None = None
    send_end_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Everything one row of `requests` is made from.

    `output_tokens_counted` is the client's own count of all that was generated, made by `counted_source`; None = not
    counted. `accepted` None = no check, or none could be applied: `accept_reason` says why, as it does for an answer
    that was refused. `validated_ns` is the end of the answer plus the time that the checks took, without any wait.
    """

    ask: Ask
    attempt: int
    request_id: str
    stamps: SendStamps
    answer: Answer
    late: bool
    target: str
    reconnects: int
    conn_reused: bool | None
    request_bytes: int
    output_tokens_counted: int | None = None
    counted_source: CountedSource | None = None
    accepted: bool | None = None
    accept_reason: str | None = None
    validated_ns: int | None = None
