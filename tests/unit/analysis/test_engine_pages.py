"""What a run folder keeps of servers and hardware, read back."""

from pathlib import Path

import numpy as np
import pytest
from tests.builders import RUN_ID, S
from tests.engine_builders import ADDRESS, write_events, write_pages

from servebench.analysis.engine import Telemetry, Track, read_telemetry
from servebench.metrics import Window


def track(*pairs: tuple[float, float]) -> Track:
    return Track(np.array([t * S for t, _ in pairs]), np.array([value for _, value in pairs]))


def test_a_run_that_read_no_page_has_no_telemetry(tmp_path: Path) -> None:
    assert read_telemetry(tmp_path, RUN_ID) == Telemetry()


def test_readings_of_several_parts_and_pages_are_told_apart(tmp_path: Path) -> None:
    write_pages(tmp_path, [(S, {"running": 1}), (2 * S, {"running": 2})], number=1)
    write_pages(tmp_path, [(0, {"running": 0})], number=0)
    write_pages(tmp_path, [(S, {"running": 7})], source="http://other/metrics", dialect="sglang", number=2)
    write_pages(tmp_path, [(S, {"gpu_power": 300})], kind="hardware", dialect="dcgm", source="http://gpu/metrics")
    found = read_telemetry(tmp_path, RUN_ID)
    first, second = found.engines
    assert (first.address, first.dialect, second.dialect) == (ADDRESS, "vllm", "sglang")
    assert first.tracks["running"].t_ns.tolist() == [0, S, 2 * S]
    assert first.tracks["running"].value.tolist() == [0, 1, 2]
    assert [source.dialect for source in found.hardware] == ["dcgm"]


def test_a_counter_that_appears_while_the_page_is_read_began_at_0(tmp_path: Path) -> None:
    readings = [(0, {"running": 0}), (S, {"running": 0}), (2 * S, {"running": 1, "output_tokens": 24, "waiting": 3})]
    write_pages(tmp_path, readings, dialect="litellm")
    (source,) = read_telemetry(tmp_path, RUN_ID).engines
    assert source.tracks["output_tokens"].t_ns.tolist() == [S, 2 * S]
    assert source.tracks["output_tokens"].value.tolist() == [0, 24]
    assert source.tracks["waiting"].value.tolist() == [3], "a gauge that was not shown is not 0"


def test_series_that_the_page_never_showed_are_named_with_what_was_looked_for(tmp_path: Path) -> None:
    write_pages(tmp_path, [(0, {"running": 1, "waiting": 0})], dialect="llama.cpp")
    (source,) = read_telemetry(tmp_path, RUN_ID).engines
    missing = dict(source.missing)
    assert "running" not in missing
    assert missing["kv_usage"] == ("llamacpp:kv_cache_usage_ratio",)
    assert "--metrics" in source.hint


def test_a_page_of_unknown_vocabulary_has_raw_numbers_only(tmp_path: Path) -> None:
    write_pages(tmp_path, [(0, {}), (S, {})], dialect=None)
    (source,) = read_telemetry(tmp_path, RUN_ID).engines
    assert (source.dialect, source.tracks, source.missing) == (None, {}, ())


def test_pages_that_gave_nothing_are_named_with_the_reason(tmp_path: Path) -> None:
    write_events(
        tmp_path,
        {"kind": "phase", "text": "load began"},
        {"kind": "engine", "data": {"source": "http://x/metrics", "why": "it answers 404"}},
        {"kind": "engine", "data": {"source": "http://y/metrics", "dialect": "vllm"}},
        {"kind": "engine", "data": "of another form"},
    )
    with (tmp_path / "events.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"kind": "engi')
    assert read_telemetry(tmp_path, RUN_ID).silent == (("http://x/metrics", "it answers 404"),)


def test_a_damaged_part_costs_its_readings_only(tmp_path: Path) -> None:
    write_pages(tmp_path, [(0, {"running": 1})], number=0)
    (tmp_path / "engine" / "part-master-000001.parquet").write_bytes(b"PAR1 cut")
    (source,) = read_telemetry(tmp_path, RUN_ID).engines
    assert source.tracks["running"].value.tolist() == [1]


@pytest.mark.parametrize(
    ("window", "grown"),
    [
        pytest.param(Window(0, 4 * S), 40, id="whole"),
        pytest.param(Window(1 * S, 3 * S), 20, id="between readings that are on its edges"),
        pytest.param(Window(0.5 * S, 3.5 * S), 20, id="snaps to the readings inside"),
        pytest.param(Window(8 * S, 9 * S), None, id="never read"),
        pytest.param(Window(2 * S, 20 * S), None, id="read for too small a share"),
    ],
)
def test_a_counter_grows_between_the_readings_of_a_window(window: Window, grown: float | None) -> None:
    assert track((0, 100), (1, 110), (2, 120), (3, 130), (4, 140)).growth(window) == grown


def test_a_counter_that_fell_began_again_at_zero() -> None:
    assert track((0, 100), (1, 110), (2, 4), (3, 9)).growth(Window(0, 3 * S)) == 10 + 4 + 5


def test_the_mean_of_several_engines_weighs_each_by_its_requests(tmp_path: Path) -> None:
    window = Window(0, 10 * S)
    write_pages(tmp_path, [(0, {"queue_s": 0, "queue_n": 0}), (10 * S, {"queue_s": 30, "queue_n": 10})], number=0)
    write_pages(
        tmp_path,
        [(0, {"queue_s": 5, "queue_n": 5}), (10 * S, {"queue_s": 15, "queue_n": 35})],
        source="http://other/metrics",
        number=1,
    )
    found = read_telemetry(tmp_path, RUN_ID)
    assert found.mean_ms("queue", window) == pytest.approx(1000.0)  # 30 s + 10 s over 10 + 30 requests
    assert found.mean_ms("prefill", window) is None
