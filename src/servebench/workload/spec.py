"""Know what a workload file may say: its keys, their types and the rules between them.

Every model refuses unknown keys and converts nothing silently. `LATER_KEYS` and `LATER_WORDS` are the parts of the file
format that this version does not build; they are refused by name instead of being taken for slips.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from servebench.workload.words import Declared, Duration, DurationOrZero, Param, Rate, Share, Slug, Tokens

LATER_KEYS = frozenset(
    {"accept", "conversation", "cv", "mean_per_s", "period", "profile", "share", "think_time", "users", "clients"}
)
LATER_WORDS: dict[str, frozenset[str]] = {
    "endpoint": frozenset(
        {
            "openai-responses",
            "openai-embeddings",
            "anthropic-messages",
            "tgi-generate",
            "triton-generate",
            "kserve-v2",
            "ollama-chat",
        }
    ),
    "state": frozenset({"cold", "warm", "shared_prefix"}),
    "kind": frozenset(
        {"closed", "sharegpt", "oasst", "humaneval", "arena-hard", "text", "trace", "mooncake", "burstgpt", "ragpulse"}
    ),
    "process": frozenset({"gamma", "weibull", "onoff"}),
    "shape": frozenset({"ramp", "diurnal", "spike", "sine"}),
    "from": frozenset({"uniform", "lognormal", "empirical"}),
    "lengths": frozenset({"exact"}),
}
RESERVED_PARAMS = frozenset({"model", "messages", "prompt", "stream", "stream_options", "max_tokens"})
QUANTILES: dict[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def wrong(message: str, *place: str | int) -> PydanticCustomError:
    """Return the error of a rule between keys; `place` goes on from the model or field that is being checked."""
    # Values can hold braces, which the error's template would take for its own.
    return PydanticCustomError("rule", "{message}", {"message": message, "place": place})


class Strict(BaseModel):
    """Refuses unknown keys, changes no type, cannot be changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CacheSpec(Strict):
    """State of the server's prefix cache that the run starts from."""

    state: Literal["undeclared"] = "undeclared"


class TargetSpec(Strict):
    """What is loaded; its address is given with `--url`."""

    endpoint: Literal["openai-chat", "openai-completions"] = "openai-chat"
    model: Annotated[str, Field(min_length=1)] | None = None
    declared: dict[str, Declared] = Field(
        default={}, description="conditions of the server, e.g. engine, precision, accelerator"
    )
    cache: CacheSpec = CacheSpec()


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


class ArrivalsSpec(Strict):
    """The law of the gaps between arrivals."""

    process: Literal["constant", "poisson"] = "poisson"


class PhaseSpec(Strict):
    """What every phase says."""

    name: Slug
    measured: bool = True

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name == "all":
            raise wrong('"all" is reserved for all measured phases together')
        return name


class SteadyPhase(PhaseSpec):
    """One rate."""

    shape: Literal["steady"]
    rate_per_s: Rate
    duration: Duration


class StepsPhase(PhaseSpec):
    """One rate after the other, equally long."""

    shape: Literal["steps"]
    rates_per_s: tuple[Rate, ...] = Field(min_length=1, max_length=1000)
    duration: Duration | None = Field(default=None, description="of all steps together")
    step_duration: Duration | None = None

    @model_validator(mode="after")
    def _one_duration(self) -> Self:
        if (self.duration is None) == (self.step_duration is None):
            raise wrong("exactly one of duration (of all steps) and step_duration is wanted")
        return self


class BurstPhase(PhaseSpec):
    """A base rate; the last `length` of every period has the peak rate."""

    shape: Literal["burst"]
    base_per_s: Rate
    peak_per_s: Rate
    every: Duration
    length: Duration
    duration: Duration

    @model_validator(mode="after")
    def _bursts_fit(self) -> Self:
        if self.length >= self.every:
            raise wrong("must be shorter than every", "length")
        if self.duration < self.every:
            raise wrong("must be at least one period (every), or no burst is in it", "duration")
        return self


class ReplayPhase(PhaseSpec):
    """The times of a trace's rows, from `start` on for `length` of trace time; speed 2 plays twice as fast."""

    shape: Literal["replay"]
    trace: TraceSpec
    start: DurationOrZero = 0
    length: Duration | None = Field(default=None, description="default: to the end of the trace")
    speed: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] = 1.0


AnyPhase = Annotated[SteadyPhase | StepsPhase | BurstPhase | ReplayPhase, Field(discriminator="shape")]


class LoadSpec(Strict):
    """When requests are sent. `open`: arrivals do not wait for answers. `replay`: every phase replays a trace."""

    kind: Literal["open", "replay"]
    arrivals: ArrivalsSpec = ArrivalsSpec()
    phases: tuple[AnyPhase, ...] = Field(min_length=1, max_length=1000)

    @field_validator("phases")
    @classmethod
    def _names_differ(cls, phases: tuple[AnyPhase, ...]) -> tuple[AnyPhase, ...]:
        seen: set[str] = set()
        for index, phase in enumerate(phases):
            if phase.name in seen:
                message = f'"{phase.name}" is the name of an earlier phase'
                raise wrong(message, index, "name")
            seen.add(phase.name)
        return phases

    @model_validator(mode="after")
    def _replay_replays(self) -> Self:
        if self.kind == "replay":
            for index, phase in enumerate(self.phases):
                if phase.shape != "replay":
                    message = f"{phase.shape} needs load.kind: open; under kind: replay every phase replays a trace"
                    raise wrong(message, "phases", index, "shape")
        return self


class TimeoutsSpec(Strict):
    """Deadlines: connect from its start, first_token from sent, idle between reads, total from dispatch."""

    connect: Duration = 5_000_000_000
    first_token: Duration = 60_000_000_000
    idle: Duration = 30_000_000_000
    total: Duration = 600_000_000_000


class RetriesSpec(Strict):
    """Retries; there are none in this version."""

    max: int = Field(default=0, ge=0)

    @field_validator("max")
    @classmethod
    def _none_yet(cls, count: int) -> int:
        if count != 0:
            raise wrong("retries are not available in this version; leave it at 0")
        return count


class RequestsSpec(Strict):
    """How each request is made."""

    timeouts: TimeoutsSpec = TimeoutsSpec()
    retries: RetriesSpec = RetriesSpec()
    stream: bool = True
    params: dict[str, Param] = Field(default={}, description="go into the JSON body as they are, e.g. temperature")
    lengths: Literal["max_only"] = Field(default="max_only", description="max_only: the server may answer shorter")
    max_inflight: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="requests above are shed: recorded, never sent"
    )

    @field_validator("params")
    @classmethod
    def _not_ours(cls, params: dict[str, Any]) -> dict[str, Any]:
        for name in params:
            if name in RESERVED_PARAMS:
                raise wrong("is set by servebench from target, prompts and requests", name)
        return params


class LimitsSpec(Strict):
    """Upper limits by quantile."""

    p50: Duration | None = None
    p90: Duration | None = None
    p95: Duration | None = None
    p99: Duration | None = None
    p999: Duration | None = None

    @model_validator(mode="after")
    def _at_least_one(self) -> Self:
        if all(getattr(self, quantile) is None for quantile in QUANTILES):
            message = f"at least one of {', '.join(QUANTILES)} is wanted"
            raise wrong(message)
        return self


class ObjectivesSpec(Strict):
    """What a good run keeps to; keys are names of metrics."""

    ttft: LimitsSpec | None = None
    ttft_intended: LimitsSpec | None = None
    ttfo: LimitsSpec | None = None
    tpot: LimitsSpec | None = Field(default=None, description="per output token")
    chunk_gap: LimitsSpec | None = None
    e2e: LimitsSpec | None = None
    e2e_intended: LimitsSpec | None = None
    error_rate: Share | None = None


class WorkloadSpec(Strict):
    """A workload file."""

    name: Slug
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    target: TargetSpec = TargetSpec()
    prompts: PromptsSpec
    load: LoadSpec
    requests: RequestsSpec = RequestsSpec()
    objectives: ObjectivesSpec = ObjectivesSpec()
