"""A plan is summed up with the figures that the trace and the law are known for."""

import numpy as np
import pytest

from servebench.core.units import NS_PER_S
from servebench.workload.describe import describe, dispersion, gap_cv
from servebench.workload.load import parse_workload
from servebench.workload.schedule import plan

TEXT = """\
name: x
prompts: {source: {kind: mt-bench}, input_tokens: {from: trace}, output_tokens: {from: trace}, trace: {kind: azure}}
load: {kind: open, arrivals: {process: constant}, phases: [PHASE]}
"""


def test_a_whole_replay_has_the_published_dispersion_and_lengths() -> None:
    text = TEXT.replace("PHASE", "{name: a, shape: replay, trace: {kind: azure}}")
    (phase,) = describe(plan(parse_workload(text, "x")))
    assert phase.n == 19_366
    assert phase.rate_per_s == pytest.approx(5.53, abs=0.01)
    assert phase.gap_cv == pytest.approx(1.09, abs=0.005)
    assert phase.dispersion[1] == pytest.approx(1.4, abs=0.05)
    assert phase.dispersion[10] == pytest.approx(3.9, abs=0.05)
    # Published with the population's variance, of 58 whole minutes.
    assert phase.dispersion[60] == pytest.approx(16.1 * 58 / 57, abs=0.1)
    assert phase.input_tokens is not None
    assert phase.max_tokens is not None
    assert phase.input_tokens.total == 22_361_870
    assert (phase.input_tokens.p50, phase.input_tokens.max) == (1020, 14_050)
    assert phase.max_tokens.total == 4_088_665
    assert phase.prompts == 80


def test_constant_load_has_no_variation() -> None:
    text = TEXT.replace("PHASE", "{name: a, shape: steady, rate_per_s: 10, duration: 60s}")
    (phase,) = describe(plan(parse_workload(text, "x")))
    assert (phase.n, phase.rate_per_s) == (600, 10.0)
    assert phase.gap_cv == pytest.approx(0, abs=1e-7)
    assert phase.dispersion == {1: 0.0, 10: 0.0, 60: None}


def test_figures_without_data_are_none() -> None:
    text = TEXT.replace("PHASE", "{name: a, shape: steady, rate_per_s: 0, duration: 60s}")
    (phase,) = describe(plan(parse_workload(text, "x")))
    assert phase.rate_per_s == 0
    assert (phase.gap_cv, phase.dispersion[1], phase.input_tokens) == (None, None, None)
    assert gap_cv(np.zeros(5, dtype=np.int64)) is None


def test_only_whole_windows_count() -> None:
    times = np.array([0.5, 1.5, 2.1, 2.2, 2.3]) * NS_PER_S
    assert dispersion(times.astype(np.int64), int(2.5 * NS_PER_S), NS_PER_S) == 0


def test_repeats_are_requests_that_a_prefix_cache_may_know() -> None:
    text = TEXT.replace("from: trace", "from: prompt").replace(
        "PHASE", "{name: a, shape: steady, rate_per_s: 10, duration: 10s}"
    )
    (phase,) = describe(plan(parse_workload(text, "x")))
    assert (phase.n, phase.prompts, phase.repeats) == (100, 80, 20)
