"""Know what a file may say about when requests are sent: shapes of phases, and the load they make up."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from servebench.workload.spec_arrivals import POISSON, ArrivalsSpec
from servebench.workload.spec_prompts import ThinkLaw, TraceSpec
from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Duration, DurationOrZero, Rate, Slug

ProfileName = Literal["m-small", "m-large", "deepseek-r1", "ragpulse"]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
MOST_PARTS = 50_000
"""A phase has at most about so many stretches of its own rate."""
Part = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


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


class RatePhaseSpec(PhaseSpec):
    """What every phase with a rate curve says."""

    arrivals: ArrivalsSpec | None = Field(default=None, description="the law in this phase; default: load.arrivals")


class SteadyPhase(RatePhaseSpec):
    """One rate."""

    shape: Literal["steady"]
    rate_per_s: Rate
    duration: Duration


class StepsPhase(RatePhaseSpec):
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


class BurstPhase(RatePhaseSpec):
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
        if self.duration > MOST_PARTS * self.every:
            raise wrong(f"must be at most {MOST_PARTS:,} periods", "duration")
        return self


class RampPhase(RatePhaseSpec):
    """From one rate to another in a straight line."""

    shape: Literal["ramp"]
    from_per_s: Rate
    to_per_s: Rate
    duration: Duration


class SpikePhase(RatePhaseSpec):
    """One burst: the base rate for `before`, the peak for `length`, the base again for `recovery`."""

    shape: Literal["spike"]
    base_per_s: Rate
    peak_per_s: Rate
    before: Duration
    length: Duration
    recovery: Duration = Field(description="how long the server is watched after the peak")


class DiurnalPhase(RatePhaseSpec):
    """A day, squeezed or stretched to `period`; `profile` gives its parts over the mean of the whole day."""

    shape: Literal["diurnal"]
    mean_per_s: Rate = Field(description="mean over a whole period")
    profile: ProfileName | tuple[Part, ...] = "m-small"
    period: Duration | None = Field(default=None, description="default: the duration")
    start: DurationOrZero = Field(default=0, description="where in the period the phase begins")
    duration: Duration

    @model_validator(mode="after")
    def _profile_has_load(self) -> Self:
        if isinstance(self.profile, tuple) and not (2 <= len(self.profile) <= 1000 and sum(self.profile) > 0):
            raise wrong("2 to 1000 parts are wanted, not all of them 0", "profile")
        parts = len(self.profile) if isinstance(self.profile, tuple) else 24
        if self.duration * parts > MOST_PARTS * (self.period or self.duration):
            raise wrong(f"must be at most {MOST_PARTS // parts:,} periods", "duration")
        if self.start >= (self.period or self.duration):
            raise wrong("must be shorter than the period", "start")
        return self


class SoakPhase(RatePhaseSpec):
    """One rate for hours; like steady, with the name that says what the run is for."""

    shape: Literal["soak"]
    rate_per_s: Rate
    duration: Duration


class ReplayPhase(PhaseSpec):
    """The times of a trace's rows, from `start` on for `length` of trace time; speed 2 plays twice as fast."""

    shape: Literal["replay"]
    trace: TraceSpec
    start: DurationOrZero = 0
    length: Duration | None = Field(default=None, description="default: to the end of the trace")
    speed: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] = 1.0
    spread: bool = Field(default=False, description="rows of one tick of a coarse clock are spread over it at random")


AnyPhase = Annotated[
    SteadyPhase | StepsPhase | BurstPhase | RampPhase | SpikePhase | DiurnalPhase | SoakPhase | ReplayPhase,
    Field(discriminator="shape"),
]


class OpenLoad(Strict):
    """When requests are sent. `open`: arrivals do not wait for answers. `replay`: every phase replays a trace."""

    kind: Literal["open", "replay"]
    arrivals: ArrivalsSpec = POISSON
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


class ClosedLoad(Strict):
    """A fixed number of users, each of whom waits for the answer and a pause before the next request."""

    kind: Literal["closed"]
    users: Annotated[int, Field(ge=1, le=100_000)]
    think_time: DurationOrZero = 0
    think_law: ThinkLaw = "constant"
    requests: Count | None = None
    duration: Duration | None = None
    warmup_requests: Annotated[int, Field(ge=0, le=1_000_000_000)] = Field(
        default=0, description="sent before the others, and left out of the results"
    )

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if (self.requests is None) == (self.duration is None):
            raise wrong("exactly one of requests and duration is wanted")
        return self


LoadSpec = Annotated[OpenLoad | ClosedLoad, Field(discriminator="kind")]
