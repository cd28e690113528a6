"""Know what a file may say about the gaps between arrivals."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Duration, Slug

Cv = Annotated[float, Field(ge=0.02, le=50, allow_inf_nan=False)]


class ConstantArrivals(Strict):
    """Equal gaps."""

    process: Literal["constant"]


class PoissonArrivals(Strict):
    """Independent arrivals: exponential gaps, CV 1."""

    process: Literal["poisson"]


class GammaArrivals(Strict):
    """Gaps of a gamma law; `cv` 2 is bursty, 0.5 is even, 1 is Poisson."""

    process: Literal["gamma"]
    cv: Cv = Field(description="standard deviation of the gaps over their mean")


class WeibullArrivals(Strict):
    """Gaps of a Weibull law, by its shape or by its CV; shape 1 is Poisson, below 1 is bursty."""

    process: Literal["weibull"]
    shape: Annotated[float, Field(ge=0.2, le=50, allow_inf_nan=False)] | None = None
    cv: Annotated[float, Field(ge=0.03, le=15, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _shape_or_cv(self) -> Self:
        if (self.shape is None) == (self.cv is None):
            raise wrong("exactly one of shape and cv is wanted")
        return self


GapsSpec = Annotated[
    ConstantArrivals | PoissonArrivals | GammaArrivals | WeibullArrivals, Field(discriminator="process")
]
POISSON = PoissonArrivals(process="poisson")


class OnOffArrivals(Strict):
    """Episodes with load and without, of exponential length; `inside` is the law while it is on.

    The rate of the phase is the mean over both.
    """

    process: Literal["onoff"]
    on: Duration = Field(description="mean length of an episode with load")
    off: Duration = Field(description="mean length of an episode without")
    inside: GapsSpec = POISSON


class ClientSpec(Strict):
    """One client of a mix; its part of the rate is its weight over the sum of all weights."""

    name: Slug
    weight: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 1.0
    arrivals: Annotated[
        ConstantArrivals | PoissonArrivals | GammaArrivals | WeibullArrivals | OnOffArrivals,
        Field(discriminator="process"),
    ] = POISSON


class MixArrivals(Strict):
    """Several clients, each with a law of its own, summed."""

    process: Literal["mix"]
    clients: tuple[ClientSpec, ...] = Field(min_length=1, max_length=1000)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen: set[str] = set()
        for index, client in enumerate(self.clients):
            if client.name in seen:
                message = f'"{client.name}" is the name of an earlier client'
                raise wrong(message, "clients", index, "name")
            seen.add(client.name)
        return self


ArrivalsSpec = Annotated[
    ConstantArrivals | PoissonArrivals | GammaArrivals | WeibullArrivals | OnOffArrivals | MixArrivals,
    Field(discriminator="process"),
]
