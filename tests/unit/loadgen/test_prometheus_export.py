"""The page for Prometheus: read back with the client library's own parser, compared with numpy and the registry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from servebench.core.errors import InputError
from servebench.loadgen.desk.prometheus_export import Meters, histogram, serve
from servebench.loadgen.messages import Health, Status, Totals
from servebench.loadgen.progress import LATENCIES, LiveView
from servebench.loadgen.sketch import Sketch
from servebench.metrics.exported import BUCKETS_S, EXPORTED, PREFIX
from servebench.metrics.exported import LATENCIES as EXPORTED_LATENCIES
from servebench.metrics.registry import METRIC_BY_NAME


def status(worker: str, totals: Totals, ttft_ms: list[float]) -> Status:
    sketch = Sketch()
    sketch.add_all((np.array(ttft_ms) * 1e6).astype(np.int64))
    health = Health(hub_lag_p99_ns=2_000_000, cpu_share=0.25)
    return Status(
        run_id="r",
        worker_id=worker,
        done=False,
        totals=totals,
        ttft=sketch.take(),
        tpot={},
        chunk_gap={},
        health=health,
    )


def page(meters: Meters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(meters)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def run_with(totals: Totals, ttft_ms: list[float]) -> LiveView:
    view = LiveView()
    view.take(status("w", totals, ttft_ms))
    view.tick(1.0)
    return view


def test_counters_go_on_over_runs_and_never_fall() -> None:
    meters = Meters()
    meters.begin(run_with(Totals(output_tokens=100, outcomes={"ok": 3}), [10.0, 20.0]))
    first = page(meters)
    meters.begin(LiveView())
    second = page(meters)
    meters.begin(run_with(Totals(output_tokens=50, outcomes={"ok": 1, "timeout": 1}), [30.0]))
    third = page(meters)
    ok = ("servebench_requests_total", (("outcome", "ok"),))
    tokens = ("servebench_output_tokens_total", ())
    answers = ("servebench_ttft_seconds_count", ())
    assert [p[ok] for p in (first, second, third)] == [3, 3, 4]
    assert [p[tokens] for p in (first, second, third)] == [100, 100, 150]
    assert [p[answers] for p in (first, second, third)] == [2, 2, 3]


def test_a_worker_is_named_as_in_its_files_and_not_by_locusts_id() -> None:
    meters = Meters()
    meters.begin(run_with(Totals(), []), {"w": "w0-9f8e7d6c"}.__getitem__)
    found = page(meters)
    assert found[("servebench_client_cpu_ratio", (("worker", "w0-9f8e7d6c"),))] == 0.25
    assert not [labels for _, labels in found if ("worker", "w") in labels]


def test_what_is_unknown_has_no_sample() -> None:
    found = page(Meters())
    assert ("servebench_engine_running", ()) not in found
    assert ("servebench_workers", ()) not in found
    assert found[("servebench_run_running", ())] == 0


def test_the_newest_line_gives_the_gauges() -> None:
    meters = Meters()
    meters.begin(run_with(Totals(), []))
    server = {"running": 3.0, "waiting": 0.0, "kv_usage": 0.5, "queue_ms": 250.0}
    meters.take({"state": "running", "run_id": "r1", "phase": "burst", "workers": 2, "inflight": 7, "server": server})
    found = page(meters)
    assert found[("servebench_run_info", (("phase", "burst"), ("run_id", "r1"), ("state", "running")))] == 1
    assert found[("servebench_requests_in_flight", ())] == 7
    assert found[("servebench_engine_waiting", ())] == 0
    assert found[("servebench_engine_queue_seconds", ())] == 0.25
    assert found[("servebench_client_hub_lag_seconds", (("worker", "w"),))] == 0.002


def test_a_lost_worker_is_counted() -> None:
    meters = Meters()
    for kind in ("join", "lost", "edit", "lost"):
        meters.event(kind)
    assert page(meters)[("servebench_workers_lost_total", ())] == 2


@given(st.lists(st.floats(0.0005, 400.0), min_size=1, max_size=200))
def test_buckets_hold_what_numpy_counts_within_the_width_of_the_sketch(values_s: list[float]) -> None:
    values = np.array(values_s)
    sketch = Sketch()
    sketch.add_all((values * 1e9).astype(np.int64))
    found = {sample.labels.get("le"): sample.value for sample in histogram("ttft", sketch).samples}
    for limit in BUCKETS_S:
        low, high = (values <= limit * 0.99).sum(), (values <= limit * 1.01).sum()
        assert low <= found[repr(limit)] <= high
    assert found["+Inf"] == len(values)
    total = next(sample.value for sample in histogram("ttft", sketch).samples if sample.name.endswith("_sum"))
    assert total == pytest.approx(values.sum(), rel=0.006)


def test_help_of_a_latency_names_its_two_events() -> None:
    told = {one.name: one.help for one in EXPORTED}
    for name in EXPORTED_LATENCIES:
        metric = METRIC_BY_NAME[name]
        assert metric.start_event in told[f"{name}_seconds"]
        assert metric.stop_event in told[f"{name}_seconds"]
    assert EXPORTED_LATENCIES == LATENCIES


def test_every_family_of_the_page_is_declared_and_every_declared_one_can_be_there() -> None:
    meters = Meters()
    meters.begin(run_with(Totals(outcomes={"ok": 1}, error_classes={"http_503": 1}), [1.0]))
    names = {f"{PREFIX}_{one.name}" for one in EXPORTED}
    assert {family.name for family in meters.collect()} <= names
    meters.take({"run_id": "r", "state": "running"})
    assert {family.name for family in meters.collect()} == names


@pytest.mark.parametrize("place", ["9646x", "127.0.0.1", "127.0.0.1:0", "host:70000"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(InputError, match="is no HOST:PORT"):
        serve(Meters(), place)
