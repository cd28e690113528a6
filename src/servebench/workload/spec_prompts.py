"""Know what a file may say about prompts: where they come from, how long they are, in which order."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Duration, DurationOrZero, Tokens


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

    @model_validator(mode="after")
    def _one_of_source_and_sources(self) -> Self:
        if (self.source is None) == (self.sources is None):
            raise wrong("exactly one of source and sources is wanted")
        return self
