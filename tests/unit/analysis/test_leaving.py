"""Users who left are counted, beside what the engine says it gave up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.builders import RunSpec, S, row, small_run, steady, write_run

from servebench.analysis.engine import Source, Telemetry, Track
from servebench.analysis.leaving import leaving
from servebench.analysis.source import load_run


def engine(**tracks: list[float]) -> Source:
    made = {
        name: Track(np.arange(len(values), dtype=np.float64) * S, np.array(values, np.float64))
        for name, values in tracks.items()
    }
    return Source(address="http://127.0.0.1:8000/metrics", dialect="vllm", missing=(), tracks=made)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [row(k, sent_ns=k * S) for k in range(4)]
    rows += [row(k, sent_ns=k * S, outcome="cancelled", error_class="abandoned") for k in (4, 5)]
    rows += [row(6, sent_ns=6 * S, outcome="cancelled", error_class="run_stopped")]
    return write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))


def test_who_left_is_set_beside_what_the_engines_gave_up(folder: Path) -> None:
    run = load_run(folder)
    telemetry = Telemetry(engines=(engine(aborted=[5, 5, 6]), engine(aborted=[0, 1]), engine(running=[1, 1])))
    found = leaving(run, telemetry)
    assert found.record() == {"abandoned": 2, "engine_gave_up": 2.0}
    assert found.sentences == (
        "2 users left before their answer was over, as the workload wants; the engine gave up 2 requests",
    )


def test_an_engine_that_does_not_tell_is_not_said_to_have_given_up_none(folder: Path) -> None:
    found = leaving(load_run(folder), replace(Telemetry(), engines=(engine(running=[1, 1]),)))
    assert found.given_up is None
    assert "no engine told" in found.sentences[0]


def test_without_leavers_nothing_is_said(tmp_path: Path) -> None:
    found = leaving(load_run(small_run(tmp_path / "run")), Telemetry(engines=(engine(aborted=[0, 9]),)))
    assert (found.abandoned, found.given_up, found.sentences) == (0, None, ())
