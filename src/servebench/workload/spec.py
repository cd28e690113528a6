"""Know what a workload file may say: its keys, their types and the rules between them.

Every model refuses unknown keys and converts nothing silently.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from servebench.workload.checks import check_json_schema, parse_check
from servebench.workload.model import EndpointName
from servebench.workload.spec_load import ClosedLoad, LoadSpec
from servebench.workload.spec_prompts import PromptsSpec
from servebench.workload.spec_requests import RequestsSpec
from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Declared, Duration, Share, Slug

MOST_SHARED = 0.99
QUANTILES: dict[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class UndeclaredCache(Strict):
    """Nothing is said about the server's prefix cache, and nothing done."""

    state: Literal["undeclared"]


class ColdCache(Strict):
    """Every prompt begins with a text of this run, so that nothing of earlier runs matches."""

    state: Literal["cold"]


class WarmCache(Strict):
    """Before the first phase every prompt of the plan is sent once, for one token, not measured."""

    state: Literal["warm"]
    rate_per_s: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
    duration: Duration = Field(description="of the pass; what does not fit at the rate is counted and left out")


class SharedPrefixCache(Strict):
    """The first part of every prompt is one text, the same for all."""

    state: Literal["shared_prefix"]
    share: Share = Field(description="of each prompt's tokens, e.g. 40%")

    @field_validator("share")
    @classmethod
    def _some_but_not_all(cls, share: float) -> float:
        if not 0 < share <= MOST_SHARED:
            raise wrong("must be above 0 and at most 99%")
        return share


CacheSpec = Annotated[UndeclaredCache | ColdCache | WarmCache | SharedPrefixCache, Field(discriminator="state")]


class TargetSpec(Strict):
    """What is loaded; its address is given with `--url`."""

    endpoint: EndpointName = "openai-chat"
    model: Annotated[str, Field(min_length=1)] | None = None
    declared: dict[str, Declared] = Field(
        default={}, description="conditions of the server, e.g. engine, precision, accelerator"
    )
    cache: CacheSpec = Field(
        default=UndeclaredCache(state="undeclared"), description="state of the prefix cache that the run starts from"
    )


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


class LeastSpec(Strict):
    """A lower limit of a share."""

    min: Share


class StopSpec(Strict):
    """When the run ends before its time."""

    error_rate: Share | None = Field(default=None, description="of the requests that ended within the window")
    window: Duration = 10_000_000_000
    least: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=20, description="requests that must have ended within the window"
    )
    errors: Annotated[int, Field(ge=1)] | None = Field(default=None, description="failed requests in all")
    objectives: bool = Field(default=False, description="one of them cannot be met any more, whatever comes")

    @model_validator(mode="after")
    def _for_something(self) -> Self:
        if self.error_rate is None and self.errors is None and not self.objectives:
            raise wrong("error_rate, errors or objectives is wanted")
        return self


CheckSpec = Annotated[Any, BeforeValidator(parse_check), WithJsonSchema(check_json_schema())]


class ObjectivesSpec(Strict):
    """What a good run keeps to; keys are names of metrics."""

    ttft: LimitsSpec | None = None
    ttft_intended: LimitsSpec | None = None
    ttfo: LimitsSpec | None = None
    tpot: LimitsSpec | None = Field(default=None, description="per output token")
    chunk_gap: LimitsSpec | None = None
    e2e: LimitsSpec | None = None
    e2e_intended: LimitsSpec | None = None
    e2e_with_retries: LimitsSpec | None = None
    time_to_validated: LimitsSpec | None = None
    error_rate: Share | None = None
    accepted_share: LeastSpec | None = Field(default=None, description="of the checked answers, e.g. {min: 99%}")
    good_share: LeastSpec | None = Field(
        default=None, description="of all that ended: accepted, and within the limits of each request's metrics"
    )


class WorkloadSpec(Strict):
    """A workload file."""

    name: Slug
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    target: TargetSpec = TargetSpec()
    prompts: PromptsSpec
    load: LoadSpec
    requests: RequestsSpec = RequestsSpec()
    objectives: ObjectivesSpec = ObjectivesSpec()
    stop: StopSpec | None = Field(default=None, description="when the run ends before its time")
    accept: tuple[CheckSpec, ...] = Field(default=(), description="what every answer must be")

    @model_validator(mode="after")
    def _a_warm_pass_is_planned(self) -> Self:
        if self.target.cache.state == "warm" and isinstance(self.load, ClosedLoad):
            raise wrong(
                "warm needs load.kind: open or replay; closed load has warmup_requests", "target", "cache", "state"
            )
        return self
