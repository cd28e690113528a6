"""Gaps of one request are one cluster: simulated requests whose pace is their own; seeded."""

from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest

from servebench.analysis.gaps import Clusters, effective_gaps
from servebench.metrics.exact import Tally
from servebench.metrics.intervals import levels_for, rank_shares

REQUESTS, GAPS = 1_500, 20
LEVELS = np.array(levels_for(0.95))


def paced(rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return gaps of shape (requests, gaps): every request has a pace, its gaps vary little around it."""
    pace = rng.lognormal(np.log(20e6), 0.4, (REQUESTS, 1))
    found: npt.NDArray[np.float64] = np.round(pace * rng.lognormal(0, 0.1, (REQUESTS, GAPS)))
    return found


def clustered(ns: npt.NDArray[np.float64]) -> tuple[Tally, list[Clusters]]:
    tally = Tally()
    tally.add(ns.ravel())
    below = np.array([(ns <= cut).sum(axis=1) for cut in tally.about(LEVELS)], np.int32).T
    return tally, [Clusters(np.arange(len(ns)), np.full(len(ns), ns.shape[1], np.int32), below)]


def test_gaps_of_requests_with_a_pace_are_worth_about_as_many_as_there_are_requests() -> None:
    rng = np.random.default_rng(91)
    truth = float(np.quantile(np.concatenate([paced(rng).ravel() for _ in range(40)]), 0.95))
    sent = np.arange(float(REQUESTS))
    hits: list[bool] = []
    naive: list[bool] = []
    for _ in range(150):
        tally, clusters = clustered(paced(rng))
        n_eff = effective_gaps(sent, clusters)
        assert 0.7 * REQUESTS <= n_eff <= 3 * REQUESTS
        for found, n in ((hits, n_eff), (naive, float(tally.n))):
            shares = rank_shares(n, 0.95)
            assert shares is not None
            lo, hi = tally.about(np.array(shares))
            found.append(bool(lo <= truth <= hi))
    assert np.mean(hits) >= 0.93
    assert np.mean(naive) <= 0.6, "taken as independent, the same gaps miss"


def test_gaps_without_a_pace_are_independent() -> None:
    ns = np.round(np.random.default_rng(92).lognormal(np.log(20e6), 0.4, (REQUESTS, GAPS)))
    _, clusters = clustered(ns)
    assert effective_gaps(np.arange(float(REQUESTS)), clusters) == pytest.approx(REQUESTS * GAPS, rel=0.3)


def test_the_order_of_parts_changes_nothing() -> None:
    _, (whole,) = clustered(paced(np.random.default_rng(93)))
    half = SimpleNamespace(a=slice(None, 700), b=slice(700, None))
    pieces = [Clusters(whole.row[s], whole.gaps[s], whole.below[s]) for s in (half.b, half.a)]
    sent = np.arange(float(REQUESTS))
    assert effective_gaps(sent, pieces) == effective_gaps(sent, [whole])
