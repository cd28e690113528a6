"""The search for capacity against queues whose capacity is known, and its ends: hopeless, spoiled, never reached."""

import heapq
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.queue_streams import CAPACITY_PER_S, SLOTS, gaps, service

from servebench.analysis.capacity.evidence import budgets, clearly_missed
from servebench.analysis.capacity.fit import Share, crossing
from servebench.analysis.capacity.search import Answer, Plan, Probe, answer, next_load
from servebench.core.errors import InputError, SpecError
from servebench.metrics.intervals import vif_of_flags
from servebench.workload.model import Objective
from servebench.workload.objectives import parse_objectives

NAME = "TTFT p95"
WARM = 150


def over_the_limit(rng: np.random.Generator, per_s: float, n: int, cv: float, limit_s: float) -> np.ndarray:
    """Return which of n requests wait longer than a limit for their first token, in a queue that starts empty."""
    arrive = np.cumsum(gaps(rng, 1, n + WARM, per_s, cv), axis=1)[0]
    prefill, decode = service(rng, 1, n + WARM)
    free, ttft = [0.0] * SLOTS, np.empty(n + WARM)
    for index, (at, first, rest) in enumerate(zip(arrive, prefill[0], decode[0], strict=True)):
        start = max(at, heapq.heappop(free))
        heapq.heappush(free, start + first + rest)
        ttft[index] = start - at + first
    return ttft[WARM:] > limit_s


def searched(plan: Plan, shares: Callable[[float], Mapping[str, Share]]) -> tuple[Answer, list[Probe]]:
    """Run a search to its end."""
    probes: list[Probe] = []
    while (load := next_load(plan, probes)) is not None:
        probes.append(Probe(load=load, shares=shares(load)))
    return answer(plan, probes), probes


# The shares of saturation at which these queues have 5 % of requests over the limit: 100 runs of 20,000 requests on a
# grid of loads, interpolated.
@pytest.mark.parametrize(("cv", "limit_s", "truth"), [(1.0, 1.0, 0.67), (2.0, 2.0, 0.51)])
def test_nineteen_of_twenty_searches_land_within_five_percent(cv: float, limit_s: float, truth: float) -> None:
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(9_000 + seed)

        def shares(load: float, rng: np.random.Generator = rng) -> Mapping[str, Share]:
            flags = over_the_limit(rng, load, 4_000, cv, limit_s).astype(float)
            return {NAME: Share(load=load, n=4_000, over=int(flags.sum()), vif=vif_of_flags(flags))}

        found, probes = searched(Plan(budgets={NAME: 0.05}, start=0.4 * CAPACITY_PER_S), shares)
        assert len(probes) <= 20
        assert found.lo is not None
        assert found.hi is not None
        middle = found.load or math.sqrt(found.lo * found.hi)
        errors.append(abs(middle / (truth * CAPACITY_PER_S) - 1))
    assert sum(error <= 0.05 for error in errors) >= 19, errors


def exact(load: float, crossing_at: float, slope: float = 8.0, n: int = 4_000, budget: float = 0.05) -> Share:
    """Return the share that a logit line through (crossing_at, budget) has at a load."""
    logit = math.log(budget / (1 - budget)) + slope * math.log(load / crossing_at)
    return Share(load=load, n=n, over=round(n / (1 + math.exp(-logit))), vif=1.0)


def test_a_line_without_noise_is_met_where_it_is() -> None:
    found = crossing([exact(load, 50.0) for load in (20, 30, 40, 46, 54)], 0.05)
    assert found.load == pytest.approx(50.0, rel=0.01)
    assert found.passed == 46
    assert found.failed == 54


def test_the_stricter_objective_decides() -> None:
    plan = Plan(budgets={"ttft": 0.05, "errors": 0.01}, start=20.0)
    found, _ = searched(plan, lambda load: {"ttft": exact(load, 60.0), "errors": exact(load, 40.0, budget=0.01)})
    assert found.status == "found"
    assert found.objective == "errors"
    assert found.load == pytest.approx(40.0, rel=0.03)


def test_users_are_whole_numbers() -> None:
    plan = Plan(budgets={NAME: 0.05}, start=4.0, whole=True)
    found, probes = searched(plan, lambda load: {NAME: exact(load, 17.5)})
    assert all(probe.load == int(probe.load) for probe in probes)
    assert found.load == 17


def test_an_objective_missed_at_every_load_ends_the_search_early() -> None:
    plan = Plan(budgets={NAME: 0.05}, start=100.0)
    found, probes = searched(plan, lambda load: {NAME: Share(load=load, n=1_000, over=900, vif=1.0)})
    assert found.status == "hopeless"
    assert found.objective == NAME
    assert found.load is None
    assert len(probes) < 10


def test_an_objective_never_missed_gives_a_lower_bound() -> None:
    plan = Plan(budgets={NAME: 0.05}, start=10.0, probes=6)
    found, probes = searched(plan, lambda load: {NAME: Share(load=load, n=1_000, over=0, vif=1.0)})
    assert found.status == "at least"
    assert found.lo == max(probe.load for probe in probes)
    assert found.hi is None


def test_a_spoiled_probe_is_made_again_once_and_is_never_evidence() -> None:
    plan = Plan(budgets={NAME: 0.05}, start=10.0)
    first = Probe(load=10.0, shares={NAME: exact(10.0, 50.0)})
    spoiled = Probe(load=14.0, spoiled="the client was too slow")
    assert next_load(plan, [first, spoiled]) == 14.0
    assert next_load(plan, [first, spoiled, spoiled]) is None
    assert answer(plan, [first, spoiled, spoiled]) == answer(plan, [first])
    assert answer(plan, [spoiled, spoiled]).status == "not resolved"


def test_a_start_far_too_high_falls_to_the_capacity() -> None:
    found, probes = searched(Plan(budgets={NAME: 0.05}, start=400.0), lambda load: {NAME: exact(load, 50.0)})
    assert found.status == "found"
    assert found.load == pytest.approx(50.0, rel=0.03)
    assert len(probes) <= 20


def test_few_hits_among_correlated_requests_are_no_clear_miss() -> None:
    assert clearly_missed(Share(load=1.0, n=1_000, over=100, vif=1.0), 0.05)
    assert not clearly_missed(Share(load=1.0, n=1_000, over=100, vif=30.0), 0.05)
    assert not clearly_missed(Share(load=1.0, n=60, over=4, vif=1.0), 0.05)


def test_options_say_objectives_as_a_file_does() -> None:
    asked = parse_objectives(["ttft.p95=800ms", "error_rate=1%"])
    assert asked == (
        Objective(metric="ttft", quantile=0.95, limit=800e6),
        Objective(metric="error_rate", quantile=None, limit=0.01),
    )
    assert budgets(asked) == {"TTFT p95 < 800 ms": pytest.approx(0.05), "error rate < 1 %": pytest.approx(0.01)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft.p95", "is no objective"),
        ("tfft.p95=800ms", "ttft"),
        ("ttft.p95=800", "unit"),
        ("=1", "is no objective"),
    ],
)
def test_an_option_that_is_no_objective_is_refused_with_the_way_out(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse_objectives([text])


def test_a_search_without_an_objective_on_requests_is_refused() -> None:
    with pytest.raises(InputError, match="no objectives"):
        budgets(())
    with pytest.raises(InputError, match="cannot be searched for"):
        budgets(parse_objectives(["chunk_gap.p99=100ms"]))
