"""Every trace format gives the published figures of its file, and its quirks are seen, told and mended on demand."""

import io
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.workload_builders import understood

from servebench.core.errors import InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.builtin import data_path
from servebench.workload.model import Prompts, PromptSource, TraceKind, TraceSlice
from servebench.workload.prompts import PromptSet
from servebench.workload.rows import Trace
from servebench.workload.schedule import Schedule, plan
from servebench.workload.trace_csv import read_csv
from servebench.workload.trace_layout import LAYOUTS
from servebench.workload.traces import read_trace, rows_of

MOONCAKE = TraceSlice(kind="mooncake", path="builtin:mooncake-conversation")
RAGPULSE = TraceSlice(kind="ragpulse", path="builtin:ragpulse")
R1 = TraceSlice(kind="servegen", path="builtin:servegen-deepseek-r1")


def dispersion(times_ns: npt.NDArray[np.int64], window_s: int) -> float:
    whole = int(times_ns[-1]) // (window_s * NS_PER_S)
    counts = np.bincount(times_ns // (window_s * NS_PER_S), minlength=whole)[:whole]
    return float(counts.var(ddof=1) / counts.mean())


def cv(times_ns: npt.NDArray[np.int64]) -> float:
    gaps = np.diff(times_ns)
    return float(gaps.std() / gaps.mean())


@pytest.fixture(scope="module")
def mooncake() -> Trace:
    return read_trace(MOONCAKE)


@pytest.mark.parametrize(
    ("part", "n", "span_s", "inputs", "outputs"),
    [
        (TraceSlice(kind="azure", path="builtin:azure-llm-2023-conv"), 19_366, 3501.7219, 22_361_870, 4_088_665),
        (TraceSlice(kind="azure", path="builtin:azure-llm-2023-code"), 7_491, 2392.5556, 15_282_456, 206_626),
        (MOONCAKE, 12_031, 3536.999, 144_793_823, 4_122_048),
        (RAGPULSE, 4_354, 345_577, 12_728_210, 1_188_846),
    ],
    ids=["azure conv", "azure code", "mooncake", "ragpulse"],
)
def test_a_shipped_trace_has_the_published_figures(
    part: TraceSlice, n: int, span_s: float, inputs: int, outputs: int
) -> None:
    trace = read_trace(part)
    left_out = len(trace.left_out_ns)
    assert len(trace) + left_out == n
    assert (trace.offset_ns[-1]) / NS_PER_S == pytest.approx(span_s, abs=5e-5 if left_out == 0 else 60)
    assert (int(trace.input_tokens.sum()), int(trace.output_tokens.sum())) == (inputs, outputs)


def test_the_code_trace_is_silent_two_seconds_of_three_and_bursts_to_67_in_one() -> None:
    trace = read_trace(TraceSlice(kind="azure", path="builtin:azure-llm-2023-code"))
    counts = np.bincount(trace.offset_ns // NS_PER_S)
    assert counts.max() == 67
    assert np.mean(counts == 0) == pytest.approx(0.68, abs=0.01)
    assert [dispersion(trace.offset_ns, window) for window in (1, 10, 60)] == pytest.approx([12.9, 70.2, 155], rel=0.03)


def test_blocks_of_mooncake_are_the_published_ones(mooncake: Trace) -> None:
    assert mooncake.blocks is not None
    assert len(mooncake.blocks.ids) == 288_500
    assert len(np.unique(mooncake.blocks.ids)) == 182_790
    assert len(np.unique(mooncake.offset_ns)) == 1_180


def replayed(kind: str, keys: str = "") -> Schedule:
    text = (
        "name: case\nseed: 5\nprompts: {source: {kind: mt-bench}, input_tokens: {from: trace}, "
        "output_tokens: {from: trace}}\n"
        f"load: {{kind: replay, phases: [{{name: rows, shape: replay, trace: {{kind: {kind}}}{keys}}}]}}\n"
    )
    return plan(understood(text))


def test_ticks_of_a_coarse_clock_are_told_and_replayed_as_they_are() -> None:
    schedule = replayed("mooncake")
    assert schedule.notes["trace_tick_ms"] == 3000
    assert schedule.notes["trace_equal_times"] > 12_000
    assert cv(schedule.intended_ns) == pytest.approx(3.03, abs=0.01)
    assert dispersion(schedule.intended_ns, 1) == pytest.approx(7.9, abs=0.1)


def test_ticks_are_spread_on_demand_within_their_tick_and_in_the_order_of_the_file(mooncake: Trace) -> None:
    schedule = replayed("mooncake", ", spread: true")
    assert "trace_tick_ms" not in schedule.notes
    assert schedule.notes["trace_spread_rows"] > 12_000
    moved = schedule.intended_ns - mooncake.offset_ns
    assert (moved >= 0).all()
    assert moved.max() < 3.1 * NS_PER_S
    assert (schedule.input_tokens == mooncake.input_tokens).all()
    assert cv(schedule.intended_ns) == pytest.approx(1.00, abs=0.03)
    found = [dispersion(schedule.intended_ns, window) for window in (1, 10, 60)]
    assert found == pytest.approx([1.0, 1.5, 2.9], rel=0.12)


def test_a_trace_with_a_fine_clock_has_no_ticks() -> None:
    assert "trace_tick_ms" not in replayed("azure").notes


def test_lengths_above_a_cap_are_clipped_dropped_or_scaled_and_counted(mooncake: Trace) -> None:
    above = int(np.count_nonzero(mooncake.input_tokens > 32_768))
    assert above / len(mooncake) == pytest.approx(0.069, abs=0.0005)
    plans: dict[str, Schedule] = {}
    for over in ("clip", "drop", "scale"):
        text = (
            "name: case\nprompts:\n  source: {kind: mt-bench}\n"
            f"  input_tokens: {{from: trace, max: 32768, over: {over}}}\n"
            "load: {kind: replay, phases: [{name: rows, shape: replay, trace: {kind: mooncake}}]}\n"
        )
        plans[over] = plan(understood(text))
    clip, drop, scale = plans["clip"], plans["drop"], plans["scale"]
    assert (clip.notes["clipped_input"], len(clip), clip.input_tokens.max()) == (above, 12_031, 32_768)
    assert (drop.notes["dropped_input"], len(drop)) == (above, 12_031 - above)
    assert (len(scale), scale.input_tokens.max()) == (12_031, 32_768)
    assert scale.input_tokens.sum() / mooncake.input_tokens.sum() == pytest.approx(32_768 / 126_195, rel=1e-3)
    assert scale.notes["scaled_input"] > 12_000


def hit_share(prompts: Iterable[Iterable[tuple[object, int]]]) -> float:
    """Return the share of tokens that an endless prefix cache knows, of prompts given as pieces with their tokens."""
    known: set[object] = set()
    hit = total = 0
    for pieces in prompts:
        chain: object = None
        for piece, tokens in pieces:
            chain = hash((chain, piece))
            hit += tokens if chain in known else 0
            total += tokens
            known.add(chain)
    return hit / total


def test_rendered_prompts_reuse_their_prefixes_as_the_trace_does(mooncake: Trace) -> None:
    # Texts in pieces of 64 characters, about 16 tokens, as a server's cache would see them.
    assert mooncake.blocks is not None
    blocks, rows = mooncake.blocks, range(2_000)
    recorded = []
    for row in rows:
        first, last = int(blocks.first[row]), int(blocks.last[row])
        tokens = np.full(last - first, 512)
        tokens[-1] = mooncake.input_tokens[row] - 512 * (last - first - 1)
        recorded.append(list(zip(blocks.ids[first:last].tolist(), tokens.tolist(), strict=True)))
    prompts = PromptSet.load(Prompts(sources=(PromptSource(kind="trace", path=""),), lengths_trace=MOONCAKE))
    texts = (prompts.messages(row, None)[0].content for row in rows)
    rendered = [[(text[at : at + 64], len(text[at : at + 64])) for at in range(0, len(text), 64)] for text in texts]
    wanted = hit_share(recorded)
    assert 0.2 < wanted < 0.5
    assert hit_share(rendered) == pytest.approx(wanted, rel=0.02)


def test_the_whole_mooncake_trace_has_the_published_reuse(mooncake: Trace) -> None:
    assert mooncake.blocks is not None
    blocks = mooncake.blocks
    prompts = []
    for row, (first, last) in enumerate(zip(blocks.first.tolist(), blocks.last.tolist(), strict=True)):
        ids = blocks.ids[first:last].tolist()
        rest = int(mooncake.input_tokens[row]) - 512 * (len(ids) - 1)
        prompts.append([*((block, 512) for block in ids[:-1]), (ids[-1], rest)])
    assert hit_share(prompts) == pytest.approx(0.374, abs=0.001)


def test_a_replay_with_prompts_of_blocks_sends_each_row_its_own_prompt() -> None:
    text = (
        "name: case\nprompts: {source: {kind: trace}, input_tokens: {from: trace, max: 8192, over: drop}}\n"
        "load: {kind: replay, phases: [\n"
        "  {name: rows, shape: replay, trace: {kind: mooncake}, start: 60s, length: 60s}]}\n"
    )
    trace = read_trace(MOONCAKE)
    schedule = plan(understood(text))
    assert (trace.input_tokens[schedule.prompt_id] == schedule.input_tokens).all()
    assert (trace.offset_ns[schedule.prompt_id] - 60 * NS_PER_S == schedule.intended_ns).all()


def test_ragpulse_rows_come_in_order_with_their_sessions_and_parts() -> None:
    trace = read_trace(RAGPULSE)
    assert trace.steps_back == 1
    assert (np.diff(trace.offset_ns) >= 0).all()
    assert trace.session is not None
    rows = [json.loads(line) for line in (data_path("builtin:ragpulse") / "0_trace.jsonl").read_text().splitlines()]
    assert len({row["session_id"] for row in rows}) == 2_439
    usable = {row["session_id"] for row in rows if row["output_length"] > 0 and row["input_length"] > 0}
    assert len(np.unique(trace.session)) == len(usable)
    assert trace.blocks is not None
    lengths = np.add.reduceat(trace.blocks.tokens, trace.blocks.first[np.argsort(trace.blocks.first)])
    assert (np.sort(lengths) <= 8000).all()


def test_sessions_of_a_trace_become_conversations_in_their_recorded_order_and_pace() -> None:
    text = (
        "name: case\nprompts:\n  source: {kind: trace}\n  input_tokens: {from: trace}\n  output_tokens: {from: trace}\n"
        "  conversation: {turns: {from: trace}, pacing: trace}\n"
        "load: {kind: replay, phases: [{name: rows, shape: replay, trace: {kind: ragpulse}, length: 12h, speed: 60}]}\n"
    )
    workload = understood(text)
    assert workload.prompts.conversation is not None
    assert workload.prompts.conversation.history == "none"
    schedule = plan(workload)
    trace = read_trace(RAGPULSE)
    assert trace.session is not None
    assert schedule.think_ns is not None
    names = trace.session[schedule.prompt_id]
    same = np.diff(schedule.session) == 0
    assert ((np.diff(names) == 0) == same).all()
    recorded_s = np.diff(trace.offset_ns[schedule.prompt_id])[same] / NS_PER_S
    assert schedule.think_ns[1:][same] / NS_PER_S * 60 == pytest.approx(recorded_s, abs=1e-6)
    assert (recorded_s >= 0).all()
    assert sorted(schedule.prompt_id.tolist()) == list(range(rows_of(trace, workload.phases[0].replay or R1).stop))


def bailian(tmp_path: Path) -> str:
    rows = [
        {"chat_id": 1, "parent_chat_id": -1, "timestamp": 10.5, "turn": 1, "input_length": 40, "hash_ids": [1, 2, 3]},
        {"chat_id": 2, "parent_chat_id": -1, "timestamp": 11.0, "turn": 1, "input_length": 20, "hash_ids": [1, 9]},
        {
            "chat_id": 3,
            "parent_chat_id": 1,
            "timestamp": 12.25,
            "turn": 2,
            "input_length": 60,
            "hash_ids": [1, 2, 3, 4],
        },
        {"chat_id": 4, "parent_chat_id": 77, "timestamp": 13.0, "turn": 3, "input_length": 16, "hash_ids": [8]},
        {"chat_id": 5, "parent_chat_id": 3, "timestamp": 14.0, "turn": 3, "input_length": 64, "hash_ids": [1, 2, 3, 4]},
    ]
    path = tmp_path / "qwen.jsonl"
    path.write_text(
        "\n".join(json.dumps({**row, "output_length": 7, "type": "text"}) for row in rows), encoding="utf-8"
    )
    return str(path)


def test_qwen_turns_follow_their_parents_and_blocks_have_16_tokens(tmp_path: Path) -> None:
    trace = read_trace(TraceSlice(kind="qwen-bailian", path=bailian(tmp_path)))
    assert (trace.offset_ns / NS_PER_S).tolist() == [0, 0.5, 1.75, 2.5, 3.5]
    assert trace.session is not None
    first, second, third, fourth, fifth = trace.session.tolist()
    assert first == third == fifth
    assert len({first, second, fourth}) == 3
    assert trace.blocks is not None
    assert set(trace.blocks.tokens.tolist()) == {16}


@pytest.mark.parametrize("columns", ["6", "8"])
def test_both_forms_of_burstgpt_are_read_and_blank_sessions_stand_alone(columns: str) -> None:
    short = (
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"5,ChatGPT,472,18,490,C\n45,GPT-4,1,2,3,C\n"
    )
    long = (
        b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"19440110.0,aa-1,43,GPT-4,472,18,490,C\n19440150.0,,8,GPT-4,1,2,3,API\n"
    )
    rows = read_csv(io.BytesIO(short if columns == "6" else long), "burst.csv", LAYOUTS["burstgpt"])
    assert rows.time_ns.tolist() == [0, 40 * NS_PER_S]
    assert rows.input_tokens.tolist() == [472, 1]
    assert (rows.session is None) == (columns == "6")
    if rows.session is not None:
        assert rows.session.tolist() == [0, -1]


@pytest.mark.parametrize(
    ("kind", "line", "place", "words"),
    [
        ("mooncake", '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": {}}', "hash_ids", "ragpulse"),
        (
            "mooncake",
            '{"timestamp": "0", "input_length": 1, "output_length": 1, "hash_ids": []}',
            "timestamp",
            "number",
        ),
        ("mooncake", '{"timestamp": 0, "input_length": -1, "output_length": 1, "hash_ids": []}', "input_length", "-1"),
        ("mooncake", '{"timestamp": 0, "output_length": 1, "hash_ids": []}', "input_length", "missing"),
        ("mooncake", '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}', "hash_ids", "ids"),
        ("mooncake", "[1]", "row", "object"),
        ("mooncake", "{", "text", "JSON"),
        ("qwen-bailian", '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": []}', "chat_id", "null"),
    ],
)
def test_a_bad_row_of_json_is_a_fault_with_its_line(
    tmp_path: Path, kind: TraceKind, line: str, place: str, words: str
) -> None:
    good = '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [], "chat_id": 1, "parent_chat_id": -1}'
    (tmp_path / "t.jsonl").write_text(f"{good}\n\n{line}\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_trace(TraceSlice(kind=kind, path=str(tmp_path / "t.jsonl")))
    (fault,) = caught.value.faults
    assert (fault.line, fault.place) == (3, place)
    assert words in fault.message


def test_a_ragpulse_trace_without_its_dictionaries_is_refused(tmp_path: Path) -> None:
    (tmp_path / "0_trace.jsonl").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"1_sys_prompt\.jsonl is missing"):
        read_trace(TraceSlice(kind="ragpulse", path=str(tmp_path)))
