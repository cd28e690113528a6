"""Know what an experiment file says: one workload, the variants of a service, and how their runs are ordered."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from servebench.workload.load import load_spec
from servebench.workload.strict import Strict, wrong
from servebench.workload.words import Declared, Duration, Slug

Order = Literal["abba", "random"]
Words = Annotated[tuple[str, ...], Field(min_length=1)]


class VariantSpec(Strict):
    """One form of the service. With `command` it is started before each run and ended after it."""

    name: Slug
    url: str | None = Field(default=None, description="where it answers; default: the experiment's")
    command: Words | None = Field(default=None, description="starts the server, as a list; no shell reads it")
    environment: dict[str, str] = Field(default={}, description="added to the command's and the hooks' environment")
    before: Words | None = Field(default=None, description="a program run to its end before each run")
    after: Words | None = Field(default=None, description="a program run to its end after each run")
    ready: str = Field(default="/v1/models", pattern=r"/.*", description="path that answers 200 when it is up")
    ready_within: Duration = 300_000_000_000
    model: str | None = None
    declared: dict[str, Declared] = Field(default={}, description="conditions of the server, such as max_num_seqs: 128")


class CompareSpec(Strict):
    """How variants are compared with the first one."""

    primary: str = "ttft.p95"
    margin_percent: Annotated[float, Field(gt=0, strict=False)] = 5.0
    require: tuple[str, ...] = Field(default=(), description='acceptance, such as "ttft.p95<-10%"')
    change: str | None = Field(default=None, description="the condition that was meant to differ")
    allow: tuple[str, ...] = Field(default=(), description="conditions that may differ and are marked")


class ExperimentSpec(Strict):
    """An experiment file. The first variant is the one that the others are compared with."""

    name: Slug
    workload: str = Field(description="workload file, relative to this one; `builtin:` names are known")
    url: str | None = None
    repeats: Annotated[int, Field(ge=1, le=100)] = Field(default=5, description="runs of each variant")
    order: Order = Field(default="abba", description="abba: forth and back; random: a seeded draw in each round")
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    cache: tuple[Literal["as-declared", "cold"], ...] = Field(default=("as-declared",), min_length=1)
    pause: Duration = Field(default=0, description="rest between runs")
    variants: Annotated[tuple[VariantSpec, ...], Field(min_length=2)]
    compare: CompareSpec = CompareSpec()

    @model_validator(mode="after")
    def _names_and_addresses(self) -> "ExperimentSpec":
        names = [variant.name for variant in self.variants]
        for index, variant in enumerate(self.variants):
            if variant.name in names[:index]:
                raise wrong(f'"{variant.name}" is the name of two variants', "variants", index, "name")
            if variant.url is None and self.url is None:
                raise wrong("missing, and the experiment names no url either", "variants", index, "url")
        if len(set(self.cache)) < len(self.cache):
            raise wrong("the same state twice", "cache")
        return self


class Turn(NamedTuple):
    """One run of an experiment: repeat `number` from 0 of a variant, in a cache state."""

    number: int
    variant: str
    cache: str


def load_experiment(path: Path) -> ExperimentSpec:
    """Return the experiment of a YAML file.

    Raises SpecError with every fault of the file, and InputError where it cannot be read.
    """
    return load_spec(path, ExperimentSpec, "experiment")


def turns(names: Sequence[str], repeats: int, order: Order, caches: Sequence[str], seed: int) -> tuple[Turn, ...]:
    """Return all runs in the order in which they are made; equal arguments give an equal order.

    Every round has each variant once. `abba` turns round at each round, so that a drift in time falls on all alike;
    `random` shuffles each round.
    """
    found: list[Turn] = []
    drawn = random.Random(seed)  # noqa: S311 - an order, no secret
    for number in range(repeats):
        round_ = list(names)
        if order == "random":
            drawn.shuffle(round_)
        elif number % 2:
            round_.reverse()
        found += [Turn(number, name, cache) for cache in caches for name in round_]
    return tuple(found)
