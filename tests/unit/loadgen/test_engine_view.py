"""What the readings of the last seconds say of all engines together, and where pages are asked for."""

import pytest

from servebench.core.errors import InputError
from servebench.core.target import parse_target
from servebench.loadgen.scrape.pages import places_to_ask, split_places
from servebench.loadgen.scrape.view import EngineView, Point

TARGET = parse_target("http://user:secret@10.0.0.1:8000/v1?key=hidden")


def test_before_the_first_reading_there_is_nothing_to_say() -> None:
    assert EngineView().figures(0.0) is None


def test_replicas_add_up_and_the_fullest_cache_counts() -> None:
    view = EngineView()
    view.take("a", Point(10.0, "vllm", {"running": 3, "waiting": 1, "kv_usage": 0.5}))
    view.take("b", Point(10.5, "vllm", {"running": 4, "kv_usage": 0.25}))
    figures = view.figures(11.0)
    assert figures is not None
    assert (figures["running"], figures["waiting"], figures["kv_usage"]) == (7, 1, 0.5)
    assert (figures["dialect"], figures["sources"], figures["age_s"]) == ("vllm", 2, 1.0)


def test_what_no_engine_tells_is_unknown_and_not_zero() -> None:
    view = EngineView()
    view.take("a", Point(10.0, "triton", {"waiting": 0}))
    figures = view.figures(10.0)
    assert figures is not None
    assert figures["waiting"] == 0
    assert figures["running"] is None
    assert figures["kv_usage"] is None
    assert figures["prefix_hit_share"] is None
    assert figures["queue_ms"] is None


def test_means_are_over_the_requests_that_ended_in_the_window() -> None:
    view = EngineView()
    view.take("a", Point(0.0, "vllm", {"queue_s": 1.0, "queue_n": 10, "prefix_hits": 50, "prefix_queries": 100}))
    view.take("a", Point(5.0, "vllm", {"queue_s": 3.0, "queue_n": 14, "prefix_hits": 80, "prefix_queries": 140}))
    figures = view.figures(5.0)
    assert figures is not None
    assert figures["queue_ms"] == 500.0
    assert figures["prefix_hit_share"] == 0.75


def test_the_batch_of_a_server_that_counts_batches_is_inferences_by_executions() -> None:
    view = EngineView()
    view.take("a", Point(0.0, "triton", {"inferences": 100, "executions": 50}))
    view.take("a", Point(5.0, "triton", {"inferences": 180, "executions": 70}))
    figures = view.figures(5.0)
    assert figures is not None
    assert figures["batch_size"] == 4.0


def test_readings_leave_the_window_after_ten_seconds() -> None:
    view = EngineView()
    for t_s, output in ((0.0, 0.0), (5.0, 1000.0), (15.0, 1100.0)):
        view.take("a", Point(t_s, "vllm", {"output_tokens": output}))
    figures = view.figures(15.0)
    assert figures is not None
    assert figures["out_tokens_per_s"] == 10.0


def test_a_counter_that_falls_means_a_new_engine_and_no_negative_rate() -> None:
    view = EngineView()
    assert not view.take("a", Point(0.0, "vllm", {"output_tokens": 1000.0}))
    assert view.take("a", Point(1.0, "vllm", {"output_tokens": 10.0}))
    figures = view.figures(1.0)
    assert figures is not None
    assert figures["out_tokens_per_s"] is None


def test_gauges_of_an_engine_that_fell_silent_are_left_out() -> None:
    view = EngineView()
    view.take("a", Point(0.0, "vllm", {"running": 3}))
    figures = view.figures(60.0)
    assert figures is not None
    assert figures["running"] is None
    assert figures["age_s"] == 60.0


def test_hardware_is_no_engine() -> None:
    view = EngineView()
    view.take("gpu", Point(0.0, "dcgm", {"gpu_busy": 0.5}))
    assert view.figures(0.0) is None


def test_the_page_is_looked_for_beside_the_api_without_the_query() -> None:
    (place,) = places_to_ask((), TARGET, "openai-chat").targets
    assert place.redacted == "http://10.0.0.1:8000/metrics"
    assert place.query == ""


def test_triton_is_asked_at_its_own_port_too() -> None:
    places = places_to_ask((), TARGET, "triton-generate")
    assert [place.port for place in places.targets] == [8000, 8002]


def test_mlserver_is_asked_at_its_own_port_too() -> None:
    places = places_to_ask((), TARGET, "kserve-v2")
    assert [place.port for place in places.targets] == [8000, 8002, 8082]


def test_given_addresses_replace_the_guess_and_a_bare_host_stands_for_its_page() -> None:
    places = places_to_ask(
        split_places("http://a:1, http://b:2/x/metrics http://c:3/metrics?m=1"), TARGET, "openai-chat"
    )
    assert [p.redacted for p in places.targets] == ["http://a:1/metrics", "http://b:2/x/metrics", "http://c:3/metrics"]
    assert places.given


def test_off_asks_nowhere() -> None:
    assert places_to_ask(("off",), TARGET, "openai-chat").targets == ()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="SERVEBENCH_METRICS_URLS=http"):
        places_to_ask(("ftp://a",), TARGET, "openai-chat")
