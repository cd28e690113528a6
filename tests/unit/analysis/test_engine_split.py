"""Where the time of a request goes: parts worked out by hand, and when a part is said to grow."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.builders import MS, RunSpec, S, row, steady, write_run
from tests.engine_builders import counters, write_pages

from servebench.analysis.engine import Telemetry
from servebench.analysis.engine_growth import growth
from servebench.analysis.engine_side import ServerSide, server_side
from servebench.analysis.engine_split import ClientMeans, EngineMeans, How, Part, Split, parts_of
from servebench.analysis.numbers import UNDEFINED
from servebench.analysis.page.server import server_tables
from servebench.analysis.report import write_report
from servebench.analysis.run import open_run
from servebench.analysis.source import load_run
from servebench.analysis.windows import Level
from servebench.metrics import Window
from servebench.shards.manifest import StepRecord

CLIENT = ClientMeans(lag=2.0, connect=1.0, service=1000.0, first=400.0, decode=590.0)


def told(parts: Sequence[Part]) -> dict[str, tuple[float, How]]:
    return {part.name: (round(part.ms, 6), part.how) for part in parts}


ENGINES = {
    "vllm tells every stage": (
        EngineMeans(ttft=390, queue=150, prefill=230, decode=580, e2e=975),
        {
            "server queue": (150, How.ENGINE),
            "prefill": (230, How.ENGINE),
            "decode": (580, How.ENGINE),
            "network and client": (40, How.INFERRED),
        },
    ),
    "queue, TTFT and E2E give prefill and decode as differences": (
        EngineMeans(ttft=390, queue=150, e2e=975),
        {
            "server queue": (150, How.ENGINE),
            "prefill": (240, How.INFERRED),
            "decode": (585, How.INFERRED),
            "network and client": (25, How.INFERRED),
        },
    ),
    "Dynamo's frontend does not tell the queue apart": (
        EngineMeans(ttft=390, e2e=975),
        {
            "queue and prefill": (390, How.ENGINE),
            "decode": (585, How.INFERRED),
            "network and client": (25, How.INFERRED),
        },
    ),
    "queue and E2E alone leave prefill to the client's decode": (
        EngineMeans(queue=150, e2e=975),
        {
            "server queue": (150, How.ENGINE),
            "prefill": (235, How.INFERRED),
            "decode": (590, How.CLIENT),
            "network and client": (25, How.INFERRED),
        },
    ),
    "Triton's compute is prefill and decode in one": (
        EngineMeans(queue=150, work=800, e2e=960),
        {
            "server queue": (150, How.ENGINE),
            "prefill and decode": (800, How.ENGINE),
            "network and client": (50, How.INFERRED),
        },
    ),
    "Triton is done with a request of a decoupled model before its answer streams": (
        EngineMeans(queue=150, work=1, e2e=160),
        {
            "server queue": (150, How.ENGINE),
            "until the first token": (250, How.INFERRED),
            "decode": (590, How.CLIENT),
            "network and client": (10, How.INFERRED),
        },
    ),
    "llama.cpp tells prefill and decode and no queue": (
        EngineMeans(prefill=230, decode=580),
        {
            "prefill": (230, How.ENGINE),
            "decode": (580, How.ENGINE),
            "network and client": (190, How.INFERRED),
        },
    ),
    "without any page the client's own stamps remain": (
        EngineMeans(),
        {
            "until the first token": (400, How.CLIENT),
            "decode": (590, How.CLIENT),
            "network and client": (10, How.INFERRED),
        },
    ),
}


@pytest.mark.parametrize("name", ENGINES)
def test_each_engine_gives_the_parts_that_it_tells(name: str) -> None:
    means, expected = ENGINES[name]
    parts = parts_of(means, CLIENT)
    assert told(parts) == expected | {"send lag": (2, How.CLIENT), "connect": (1, How.CLIENT)}
    assert sum(part.ms for part in parts) == pytest.approx(1003)


def test_an_answer_in_one_piece_without_metrics_is_one_part() -> None:
    parts = parts_of(EngineMeans(), ClientMeans(lag=2.0, connect=0.0, service=500.0, first=None, decode=None))
    assert told(parts)["until the answer"] == (500, How.CLIENT)


def two_levels(folder: Path) -> ServerSide:
    """Return the split of 20 requests at 2/s that take 130 ms, and 40 at 4/s that queue 300 ms longer."""
    steps = [
        StepRecord(index=0, start_ns=0, end_ns=10 * S, rate_per_s=2),
        StepRecord(index=1, start_ns=10 * S, end_ns=20 * S, rate_per_s=4),
    ]
    rows = [row(k, sent_ns=k * S // 2 + 5 * MS, intended_ns=k * S // 2, step=0) for k in range(20)]
    for k in range(40):
        due = 10 * S + k * S // 4
        rows.append(row(20 + k, sent_ns=due + 5 * MS, intended_ns=due, step=1, ttft_ns=400 * MS))
    rows[0] |= {"connect_start_ns": 0, "connect_end_ns": 4 * MS}
    write_run(folder, RunSpec(rows=rows, phases=[steady("load", 0, 20, steps=steps)]))
    fast = {"ttft": 0.09, "queue": 0.01, "e2e": 0.12}
    slow = {"ttft": 0.39, "queue": 0.31, "e2e": 0.42}
    readings = [(t * S, counters(2 * t, **fast)) for t in range(11)]
    before = counters(20, **fast)
    for t in range(1, 11):
        more = counters(4 * t, **slow)
        readings.append(((10 + t) * S, {name: before[name] + more[name] for name in before}))
    write_pages(folder, readings)
    return server_side(load_run(folder))


def test_parts_of_a_level_are_means_of_what_ended_in_it(tmp_path: Path) -> None:
    first, second = two_levels(tmp_path / "run").splits
    assert (first.n, second.n) == (20, 39)  # the last of the second level ends after its last reading
    assert first.total_ms == pytest.approx(135)
    assert first.ms("connect") == pytest.approx(4 / 20)
    assert first.ms("send lag") == pytest.approx(5 - 4 / 20)
    assert first.ms("server queue") == pytest.approx(10)
    assert first.ms("prefill") == pytest.approx(80)
    assert first.ms("decode") == pytest.approx(30)
    assert first.ms("network and client") == pytest.approx(10)
    assert second.ms("server queue") == pytest.approx(310)
    assert first.client_ttft_ms == pytest.approx(100)
    assert first.server_ttft_ms == pytest.approx(90)


def test_the_part_that_grows_with_load_is_named(tmp_path: Path) -> None:
    side = two_levels(tmp_path / "run")
    assert side.growth is not None
    (grown,) = side.growth.parts
    assert grown.part == "server queue"
    assert grown.low_ms == pytest.approx(10)
    assert grown.high_ms == pytest.approx(310)
    assert grown.share == pytest.approx(1.0)
    assert side.sentences == (
        "From 2.00 to 4.00 req/s mean E2E from intended grows from 135 to 435 ms; "
        "most of that is server queue (10.0 to 310 ms, 100 %).",
    )


def test_an_answer_in_one_piece_keeps_what_the_engine_computed() -> None:
    client = ClientMeans(lag=0.0, connect=0.0, service=500.0, first=None, decode=None)
    assert told(parts_of(EngineMeans(queue=20, work=1, e2e=22), client))["prefill and decode"] == (1, How.ENGINE)


def test_what_a_cache_and_batches_gave_is_read_from_counters_of_the_level(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 2) for k in range(20)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))
    readings = [
        (t * S, {"cache_hits": 100 + 3 * t, "cache_misses": 50 + t, "inferences": 8 + 6 * t, "executions": 4 + 2 * t})
        for t in range(11)
    ]
    write_pages(folder, readings, dialect="triton")
    found = {table.name: table for table in server_tables(server_side(load_run(folder)))}
    counts = found["server-counts"]
    assert counts.head == ("phase", "level", "answers from its cache, %", "requests a batch")
    assert counts.rows == (("load", UNDEFINED, "75.0", "3.00"),)


def test_a_counter_that_a_page_shows_late_is_drawn_from_then_on(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 2) for k in range(20)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))
    late = [(t * S, {"executions": t} | ({"inferences": 3 * (t - 5)} if t > 5 else {})) for t in range(11)]
    write_pages(folder, late, dialect="triton")
    (line,) = open_run(folder).plot("server-batches").data
    assert line.name == "mean of 10 s"
    assert line.x == pytest.approx(range(5, 11))
    assert line.y[-1] == pytest.approx(15 / 5)


@pytest.mark.parametrize(
    ("lookups", "percent"),
    [("hhhhhhhhhh", "100"), ("mmmmmmmmmm", "0"), ("mmmmmmmmhh", "20.0"), ("hhhhhhhhmm", "80.0")],
)
def test_a_cache_of_which_only_hits_or_only_misses_were_shown_so_far_had_none_of_the_others(
    tmp_path: Path, lookups: str, percent: str
) -> None:
    rows = [row(k, sent_ns=k * S // 2) for k in range(20)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))
    names = {"h": "cache_hits", "m": "cache_misses"}
    pages = []
    for t in range(11):
        counted = {names[letter]: lookups[:t].count(letter) for letter in lookups[:t]}
        pages.append((t * S, {"running": 1} | counted))
    write_pages(folder, pages, dialect="litellm")
    found = {table.name: table for table in server_tables(server_side(load_run(folder)))}
    assert found["server-counts"].head[2] == "answers from its cache, %"
    assert found["server-counts"].rows == (("load", UNDEFINED, percent),)
    (drawn,) = open_run(folder).plot("server-shares").data
    assert drawn.y[-1] == pytest.approx(float(percent))


def test_each_largest_value_in_the_words_below_a_plot_has_its_unit(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 2) for k in range(20)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))
    gauges = {"running": 3, "waiting": 1, "kv_usage": 0.4, "batch_size": 2}
    write_pages(folder, [(t * S, counters(3 * t, ttft=0.09, queue=0.01, e2e=0.4) | gauges) for t in range(11)])
    hardware = [(t * S, {"gpu_busy": 0.5, "gpu_power": 300.0}) for t in range(11)]
    write_pages(folder, hardware, kind="hardware", dialect="dcgm", source="http://127.0.0.1:9400/metrics")
    page = write_report(folder).read_text(encoding="utf-8")
    said = re.findall(r"at most [\d.,]*\d(.{1,9})", page.partition("<script")[0] + page.rpartition("</script>")[2])
    assert len(said) >= 8
    units = (" requests", " ms", " tok/s", " %", " W", " s", "/s", " per", " sent", " of", " open")
    assert [rest for rest in said if not rest.startswith(units)] == []
    assert re.search(r"KV cache in use at most 40.0 %", page)
    assert re.search(r"at most 300 W", page)


def test_tables_say_what_is_measured_and_what_is_missing(tmp_path: Path) -> None:
    found = {table.name: table for table in server_tables(two_levels(tmp_path / "run"))}
    assert ("prefill", "inferred", "the engine's TTFT less its queue") in found["time-basis"].rows
    assert found["ttft-sides"].rows[0] == ("load", "1", "100", "90.0", "10.0")
    (page,) = found["pages"].rows
    assert page[1] == "vllm"
    assert "kv_usage (vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc)" in page[4]


def test_other_peoples_requests_in_the_engine_are_told(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 2) for k in range(20)]
    folder = write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))
    write_pages(folder, [(t * S, counters(6 * t, ttft=0.09, queue=0.01, e2e=0.12)) for t in range(11)])
    (table, *_) = server_tables(server_side(load_run(folder)))
    assert "The engines ended 60 requests in that time and the client 20 ok ones" in table.note


def split(load: float, *, n: int = 100, error: float = 1.0, **parts: float) -> Split:
    made = tuple(Part(name.replace("_", " "), ms, How.ENGINE, "") for name, ms in parts.items())
    return Split(
        level=Level("load", None, Window(0, S), load, measured=True),
        window=Window(0, S),
        load_per_s=load,
        n=n,
        total_ms=sum(parts.values()),
        error_ms=error,
        parts=made,
        engine_n=None,
        client_ttft_ms=None,
        server_ttft_ms=None,
    )


SILENT = {
    "one level": [split(2, decode=100)],
    "few requests": [split(2, decode=100, n=19), split(8, decode=300)],
    "nearly equal loads": [split(8, decode=100), split(9, decode=300)],
    "no growth": [split(2, decode=100), split(8, decode=104)],
    "a difference that chance explains": [split(2, decode=100, error=20), split(8, decode=160, error=20)],
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_said_to_grow_with(name: str) -> None:
    assert growth(SILENT[name]) is None


def test_two_parts_are_named_where_none_is_half_of_it() -> None:
    found = growth([split(2, server_queue=10, prefill=10, decode=10), split(8, server_queue=55, prefill=30, decode=45)])
    assert found is not None
    assert [one.part for one in found.parts] == ["server queue", "decode"]


def test_without_pages_the_split_is_the_clients_alone(tmp_path: Path) -> None:
    rows = [row(k, sent_ns=k * S // 2) for k in range(20)]
    side = server_side(load_run(write_run(tmp_path / "run", RunSpec(rows=rows, phases=[steady("load", 0, 10)]))))
    assert side.telemetry == Telemetry()
    (only,) = side.splits
    assert only.ms("until the first token") == pytest.approx(100)
    assert [table.name for table in server_tables(side)] == ["time-split", "time-basis"]
