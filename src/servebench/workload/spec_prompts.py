"""Know what a file may say about prompts: where they come from, how long they are, in which order."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from servebench.workload.model import TraceKind
from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Duration, DurationOrZero, Tokens

SHIPPED_TRACES: dict[TraceKind, str] = {
    "azure": "azure-llm-2023-conv",
    "mooncake": "mooncake-conversation",
    "ragpulse": "ragpulse",
}
"""Builtin names of the traces that need no path."""

TurnCount = Annotated[int, Field(ge=1, le=1000)]
ThinkLaw = Literal["constant", "exponential"]


class ShippedSource(Strict):
    """Prompts that are shipped, or a file of the same form.

    mt-bench: questions of two turns. self-instruct: user-oriented instructions. humaneval: code to complete. oasst:
    trees of conversations.
    """

    kind: Literal["mt-bench", "self-instruct", "humaneval", "oasst"]
    path: str | None = None


class FileSource(Strict):
    """A file of prompts.

    jsonl: one JSON object per line with the key `prompt`. arena-hard: the same, or `turns`. sharegpt: a JSON array of
    conversations.
    """

    kind: Literal["jsonl", "arena-hard", "sharegpt"]
    path: str


class TextSource(Strict):
    """The paragraphs of a text as prompts, long ones in passages of 12 lines; without a path 400 kB of Shakespeare."""

    kind: Literal["text"]
    path: str | None = None


class TraceSource(Strict):
    """Prompts made of the blocks of the trace (mooncake, qwen-bailian, ragpulse), so that the same prefixes repeat."""

    kind: Literal["trace"]


SourceSpec = Annotated[ShippedSource | FileSource | TextSource | TraceSource, Field(discriminator="kind")]


class PromptLengths(Strict):
    """Input: as long as the prompt is. Output: no limit is sent."""

    kind: Literal["prompt"] = Field(alias="from")


class FixedLengths(Strict):
    """The same number of tokens for every request."""

    kind: Literal["fixed"] = Field(alias="from")
    tokens: Tokens


class TraceLengths(Strict):
    """Those of the replayed row, elsewhere of a row drawn from the lengths trace."""

    kind: Literal["trace"] = Field(alias="from")
    max: Tokens | None = Field(default=None, description="lengths above are clipped or dropped, and counted")
    over: Literal["clip", "drop", "scale"] = Field(
        default="clip", description="scale: all lengths times one factor, so that the longest fits"
    )


class UniformLengths(Strict):
    """Any number of tokens from min to max, equally likely."""

    kind: Literal["uniform"] = Field(alias="from")
    min: Tokens
    max: Tokens

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        if self.min > self.max:
            raise wrong("must not be above max", "min")
        return self


class LognormalLengths(Strict):
    """A log-normal law by its median and the standard deviation of the logarithm; longer ones are clipped to max."""

    kind: Literal["lognormal"] = Field(alias="from")
    median: Annotated[float, Field(ge=1, le=10_000_000, allow_inf_nan=False)]
    sigma: Annotated[float, Field(ge=0, le=5, allow_inf_nan=False)]
    max: Tokens | None = None


class EmpiricalLengths(Strict):
    """One of the given lengths, equally likely; name one twice to have it twice as often."""

    kind: Literal["empirical"] = Field(alias="from")
    tokens: tuple[Tokens, ...] = Field(min_length=1, max_length=10_000)


class ReplyLengths(Strict):
    """Output: as long as the reply that the prompt file has, by estimate; prompts without one are skipped."""

    kind: Literal["reply"] = Field(alias="from")


AS_THE_PROMPT = PromptLengths.model_validate({"from": "prompt"})

LengthsSpec = Annotated[
    PromptLengths | FixedLengths | UniformLengths | LognormalLengths | EmpiricalLengths | TraceLengths,
    Field(discriminator="kind"),
]
OutputLengthsSpec = Annotated[
    PromptLengths | FixedLengths | UniformLengths | LognormalLengths | EmpiricalLengths | TraceLengths | ReplyLengths,
    Field(discriminator="kind"),
]


class TraceSpec(Strict):
    """A recorded trace; without a path the shipped one: azure (conversation, 2023), mooncake and ragpulse have one."""

    kind: TraceKind
    path: str | None = None
    empty_output: Tokens | None = Field(
        default=None, description="keeps rows that generated nothing, with so many tokens; default: they are left out"
    )
    clients: tuple[Annotated[int, Field(ge=0, le=1_000_000)], ...] | None = Field(
        default=None, min_length=1, description="of a servegen folder; default: all"
    )

    @model_validator(mode="after")
    def _clients_of_servegen(self) -> Self:
        if self.clients is not None and self.kind != "servegen":
            raise wrong("only a servegen trace has clients", "clients")
        if self.path is None and self.kind not in SHIPPED_TRACES:
            raise wrong(f"missing; a trace of kind {self.kind} is not shipped", "path")
        return self


class LengthsTraceSpec(TraceSpec):
    """Rows of a trace that lengths are drawn from, by trace time."""

    start: DurationOrZero = 0
    length: Duration | None = None


class FixedTurns(Strict):
    """The same number of turns for every conversation."""

    kind: Literal["fixed"] = Field(alias="from")
    count: TurnCount


class PromptTurns(Strict):
    """As many turns as the user has in the prompt file."""

    kind: Literal["prompt"] = Field(alias="from")
    max: TurnCount | None = None


class UniformTurns(Strict):
    """Any number from min to max, equally likely."""

    kind: Literal["uniform"] = Field(alias="from")
    min: TurnCount = 1
    max: TurnCount

    @model_validator(mode="after")
    def _min_below_max(self) -> Self:
        if self.min > self.max:
            raise wrong("must not be above max", "min")
        return self


class GeometricTurns(Strict):
    """After each turn another one follows with the same probability; `max` cuts the rare long ones."""

    kind: Literal["geometric"] = Field(alias="from")
    mean: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)]
    max: TurnCount = 100


class TraceTurns(Strict):
    """The rows of one session of the replayed trace."""

    kind: Literal["trace"] = Field(alias="from")


TurnsSpec = Annotated[
    FixedTurns | PromptTurns | UniformTurns | GeometricTurns | TraceTurns, Field(discriminator="kind")
]


class ConversationSpec(Strict):
    """Arrivals start conversations; later turns follow the answer before them after a pause."""

    turns: TurnsSpec
    pacing: Literal["think_time", "trace"] = Field(
        default="think_time", description="trace: pauses as recorded between the rows of a session"
    )
    think_time: DurationOrZero = 0
    think_law: ThinkLaw = "constant"
    history: Literal["answers", "none"] | None = Field(
        default=None, description="answers: turns are sent behind what was said before; default, but not from a trace"
    )

    @model_validator(mode="after")
    def _paced_by_what_is_there(self) -> Self:
        if self.pacing == "trace" and self.turns.kind != "trace":
            raise wrong("trace needs turns: {from: trace}", "pacing")
        return self


class PromptsSpec(Strict):
    """Which prompts are sent and how long they are."""

    source: SourceSpec | None = None
    sources: tuple[SourceSpec, ...] | None = Field(default=None, min_length=1)
    order: Literal["shuffled", "sequential", "zipf"] = Field(
        default="shuffled", description="zipf: drawn with replacement, few prompts very often"
    )
    zipf_exponent: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] | None = Field(
        default=None, description="of order: zipf; default 1"
    )
    input_tokens: LengthsSpec = AS_THE_PROMPT
    output_tokens: OutputLengthsSpec = AS_THE_PROMPT
    trace: LengthsTraceSpec | None = Field(
        default=None,
        description="lengths for `from: trace` where no row is replayed; default: the first replayed trace",
    )
    conversation: ConversationSpec | None = None

    @model_validator(mode="after")
    def _one_of_source_and_sources(self) -> Self:
        if (self.source is None) == (self.sources is None):
            raise wrong("exactly one of source and sources is wanted")
        if self.zipf_exponent is not None and self.order != "zipf":
            raise wrong("needs order: zipf", "zipf_exponent")
        return self
