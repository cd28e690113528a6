"""Know what a file may say about prompts: where they come from, how long they are, in which order."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Duration, DurationOrZero, Tokens

TurnCount = Annotated[int, Field(ge=1, le=1000)]
ThinkLaw = Literal["constant", "exponential"]


class MtBenchSource(Strict):
    """First turns of MT-Bench questions; without a path the shipped 80."""

    kind: Literal["mt-bench"]
    path: str | None = None


class SelfInstructSource(Strict):
    """User-oriented instructions of Self-Instruct; without a path the shipped 250."""

    kind: Literal["self-instruct"]
    path: str | None = None


class JsonlSource(Strict):
    """One JSON object per line with the key `prompt`."""

    kind: Literal["jsonl"]
    path: str


SourceSpec = Annotated[MtBenchSource | SelfInstructSource | JsonlSource, Field(discriminator="kind")]


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
    over: Literal["clip", "drop"] = "clip"


AS_THE_PROMPT = PromptLengths.model_validate({"from": "prompt"})

LengthsSpec = Annotated[PromptLengths | FixedLengths | TraceLengths, Field(discriminator="kind")]


class TraceSpec(Strict):
    """A recorded trace; without a path the shipped Azure conversation trace of 2023."""

    kind: Literal["azure"]
    path: str | None = None


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
    order: Literal["shuffled", "sequential"] = "shuffled"
    input_tokens: LengthsSpec = AS_THE_PROMPT
    output_tokens: LengthsSpec = AS_THE_PROMPT
    trace: LengthsTraceSpec | None = Field(
        default=None,
        description="lengths for `from: trace` where no row is replayed; default: the first replayed trace",
    )
    conversation: ConversationSpec | None = None

    @model_validator(mode="after")
    def _one_of_source_and_sources(self) -> Self:
        if (self.source is None) == (self.sources is None):
            raise wrong("exactly one of source and sources is wanted")
        return self
