"""What a page of metrics says, and what it does not."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from servebench.telemetry.exposition import PageReader, Sample, read_page
from servebench.telemetry.reading import canonical, missing_text, recognise
from servebench.telemetry.rules import DIALECTS
from servebench.telemetry.series import SERIES

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def test_gauges_of_several_replicas_add_up_but_the_cache_of_the_fullest_counts() -> None:
    page = read_page(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75\n'
    )
    values = canonical(page).values
    assert values["running"] == 7
    assert values["kv_usage"] == 0.75


def test_a_metric_that_is_not_there_is_named_and_has_no_value() -> None:
    page = read_page("vllm:num_requests_running 1\n")
    reading = canonical(page)
    assert "waiting" not in reading.values
    assert "waiting (looked for vllm:num_requests_waiting)" in missing_text(reading.missing, page)


def test_a_renamed_metric_is_named_with_its_likely_new_name() -> None:
    page = read_page("vllm:num_requests_running 1\nvllm:num_request_waiting 2\n")
    reading = canonical(page)
    text = missing_text(reading.missing, page)
    assert "waiting (looked for vllm:num_requests_waiting, there is vllm:num_request_waiting)" in text


def test_an_older_name_is_read_and_told() -> None:
    reading = canonical(read_page("vllm:gpu_cache_usage_perc 0.5\n"))
    assert reading.values["kv_usage"] == 0.5
    assert reading.older == {"kv_usage": "vllm:gpu_cache_usage_perc"}


def test_a_number_that_is_none_gives_no_value() -> None:
    reading = canonical(read_page("vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running +Inf\n"))
    assert not {"kv_usage", "running"} & reading.values.keys()
    assert {"kv_usage", "running"} <= {missing.series for missing in reading.missing}


def test_the_simulator_is_not_taken_for_vllm() -> None:
    dialect = recognise(read_page("vllm:num_requests_running 1\nservebench_sim_late_steps_total 0\n").samples)
    assert dialect is not None
    assert dialect.name == "servebench-sim"


def test_an_unknown_page_has_no_dialect_and_no_values() -> None:
    reading = canonical(read_page("go_goroutines 12\n"))
    assert reading.dialect is None
    assert not reading.values
    assert not reading.missing


def test_a_line_that_is_no_prometheus_text_is_counted_and_costs_no_other() -> None:
    page = read_page('<html>\nvllm:num_requests_running 1\nx{y="1} 2\n')
    assert page.samples == (Sample("vllm:num_requests_running", (), 1.0),)
    assert page.unread == 2


def test_a_time_stamp_is_not_taken_for_the_value() -> None:
    reader = PageReader()
    first = reader.read('a{b="c"} 5 1700000000000\n')
    second = reader.read('a{b="c"} 6 1700000001000\n')
    assert first.samples == (Sample("a", (("b", "c"),), 5.0),)
    assert second.samples == (Sample("a", (("b", "c"),), 6.0),)


def test_every_rule_reads_a_series_that_is_defined() -> None:
    assert {rule.series for dialect in DIALECTS for rule in dialect.rules} <= SERIES.keys()


@given(st.lists(st.tuples(TEXT, st.floats(allow_nan=False)), min_size=1, max_size=5, unique_by=lambda pair: pair[0]))
def test_what_a_client_library_writes_is_read_back_the_second_time_too(rows: list[tuple[str, float]]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("g", "help", ["l"], registry=registry)
    for label, value in rows:
        gauge.labels(label).set(value)
    reader = PageReader()
    text = generate_latest(registry).decode()
    wanted = dict(rows)
    for _ in range(2):
        page = reader.read(text)
        assert {dict(sample.labels)["l"]: sample.value for sample in page.samples} == wanted
        assert page.unread == 0


def test_an_exemplar_behind_a_number_is_left_out() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("h_seconds", "help", buckets=[1.0], registry=registry)
    histogram.observe(0.5, {"trace_id": "x y"})
    Counter("c", "help", registry=registry).inc(3)
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call] # the library leaves it unannotated
    page = read_page(text)
    values = {(sample.name, dict(sample.labels).get("le")): sample.value for sample in page.samples}
    assert values[("h_seconds_bucket", "1.0")] == 1
    assert values[("c_total", None)] == 3
    assert all(math.isfinite(value) for value in values.values())
