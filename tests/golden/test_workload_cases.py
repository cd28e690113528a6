"""Traces and prompt files that broke other tools are read as their case says, or refused with the reason."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.workload_builders import understood

from servebench.core.errors import InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.describe import describe
from servebench.workload.model import Prompts, PromptSource, TraceKind, TraceSlice
from servebench.workload.prompt_files import read_talks
from servebench.workload.prompts import PromptSet
from servebench.workload.reuse import reuse_of
from servebench.workload.rows import Trace
from servebench.workload.schedule import Schedule, plan
from servebench.workload.tokens import estimate_tokens
from servebench.workload.traces import left_out_of, read_trace

CASES = Path(__file__).parent / "cases"
EXPECTED: dict[str, Any] = {
    name: case["expect"] for name, case in json.loads((CASES / "workload.json").read_text(encoding="utf-8")).items()
}
KINDS: dict[str, tuple[TraceKind, str]] = {
    "R01": ("azure", "R01-azure.csv"),
    "R03": ("burstgpt", "R03-burstgpt.csv"),
    "R05": ("mooncake", "R05-mooncake.jsonl"),
    "R07": ("csv", "R07-unsorted.csv"),
    "R08": ("csv", "R08-ties.csv"),
    "R09": ("burstgpt", "R09-excel.csv"),
    "R10": ("csv", "R10-epoch.csv"),
}


def part_of(kind: TraceKind, file: str) -> TraceSlice:
    return TraceSlice(kind=kind, path=str(CASES / "traces" / file))


def trace_of(case: str) -> Trace:
    return read_trace(part_of(*KINDS[case]))


def replay(kind: str, file: str, keys: str = "") -> Schedule:
    text = (
        "name: case\nprompts: {source: {kind: mt-bench}, input_tokens: {from: trace}, output_tokens: {from: trace}}\n"
        f"load: {{kind: replay, phases: [{{name: rows, shape: replay, "
        f"trace: {{kind: {kind}, path: {CASES / 'traces' / file}}}{keys}}}]}}\n"
    )
    return plan(understood(text))


@pytest.mark.parametrize("case", KINDS)
def test_rows_have_the_offsets_and_lengths_of_the_case(case: str) -> None:
    trace, expected = trace_of(case), EXPECTED[case]
    tolerance = expected.get("tol_s", 1e-9)
    assert trace.offset_ns / NS_PER_S == pytest.approx(expected["offsets_s"], abs=tolerance, rel=0)
    for name, column in (("input_tokens", trace.input_tokens), ("output_tokens", trace.output_tokens)):
        if name in expected:
            assert column.tolist() == expected[name]


@pytest.mark.parametrize("case", KINDS)
def test_a_replay_sends_the_rows_at_their_offsets(case: str) -> None:
    schedule, expected = replay(*KINDS[case]), EXPECTED[case]
    assert schedule.intended_ns / NS_PER_S == pytest.approx(expected["offsets_s"], abs=1e-6, rel=0)


def test_failed_calls_are_left_out_counted_and_never_sent_with_a_limit_of_zero() -> None:
    trace = trace_of("R03")
    assert left_out_of(trace, part_of(*KINDS["R03"])) == EXPECTED["R03"]["left_out"]
    schedule = replay(*KINDS["R03"])
    assert schedule.notes["zero_output_left_out"] == 2
    assert schedule.max_tokens.min() > 0


def test_failed_calls_are_kept_where_an_output_length_is_stated() -> None:
    kept = read_trace(TraceSlice(kind="burstgpt", path=str(CASES / "traces/R03-burstgpt.csv"), empty_output=16))
    assert (kept.offset_ns // NS_PER_S).tolist() == [0, 4, 12, 25, 40]
    assert kept.output_tokens.tolist() == [22, 16, 31, 16, 260]
    assert len(kept.left_out_ns) == 0


def test_steps_back_are_counted_and_no_wait_is_negative() -> None:
    assert trace_of("R07").steps_back == EXPECTED["R07"]["steps_back"]
    schedule = replay(*KINDS["R07"])
    assert schedule.notes["trace_steps_back"] == 2
    assert (np.diff(schedule.intended_ns) >= 0).all()


def test_equal_times_are_all_sent_and_no_rate_divides_by_zero() -> None:
    schedule = replay(*KINDS["R08"])
    (phase,) = describe(schedule)
    assert (phase.n, len(schedule)) == (10, 10)
    assert phase.gap_cv is not None
    assert np.isfinite(phase.gap_cv)


@pytest.mark.parametrize(("speed", "factor"), [(2, 1.0), (0.5, 4.0)])
def test_speed_divides_the_offsets(speed: float, factor: float) -> None:
    schedule = replay(*KINDS["R07"], f", speed: {speed}")
    assert schedule.intended_ns / NS_PER_S == pytest.approx(
        [factor * offset for offset in EXPECTED["R18"]["speed2"]], abs=1e-6
    )


@pytest.mark.parametrize("speed", [0, -1])
def test_a_speed_of_zero_or_less_is_refused(speed: int) -> None:
    with pytest.raises(SpecError, match="> 0"):
        replay(*KINDS["R07"], f", speed: {speed}")


def test_a_missing_column_is_named_beside_those_present() -> None:
    with pytest.raises(SpecError) as caught:
        read_trace(part_of("burstgpt", "R12-missing.csv"))
    message = str(caught.value)
    assert all(word in message for word in EXPECTED["R12"]["error_mentions"])
    assert "'Prompt tokens'" in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("file", ["R17-empty.csv", "R17-header-only.csv"])
def test_a_trace_without_rows_is_refused(file: str) -> None:
    with pytest.raises(InputError, match="no usable rows"):
        read_trace(part_of("csv", file))


def test_one_row_is_one_request_at_zero_without_a_rate_of_gaps() -> None:
    schedule = replay("csv", "R17-one.csv")
    assert schedule.intended_ns.tolist() == [0]
    assert describe(schedule)[0].gap_cv is None


@pytest.mark.parametrize(("kind", "file"), [("csv", "P09-lfs.csv"), ("mooncake", "P09-lfs.jsonl")])
def test_a_pointer_in_place_of_a_trace_is_refused(kind: TraceKind, file: str) -> None:
    with pytest.raises(InputError, match="git lfs pull"):
        read_trace(TraceSlice(kind=kind, path=str(CASES / "prompts" / file)))


def blocks_prompts() -> PromptSet:
    return PromptSet.load(Prompts(sources=(PromptSource(kind="trace", path=""),), lengths_trace=part_of(*KINDS["R05"])))


def test_prompts_share_text_exactly_where_the_leading_ids_agree() -> None:
    prompts = blocks_prompts()
    texts = [prompts.messages(row, None)[0].content for row in range(4)]
    block = len(texts[1]) / 700 * 512  # characters of a block of 512 tokens, about
    for pair, blocks in EXPECTED["R05"]["common_prefix_blocks"].items():
        one, other = (texts[int(number) - 1] for number in pair.split("-"))
        common = next(
            (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        limit = min(len(one), len(other))
        assert common == pytest.approx(min(blocks * block, limit), rel=0.05), pair


def test_prompts_of_blocks_have_the_recorded_length_by_the_estimate() -> None:
    prompts = blocks_prompts()
    counts = [estimate_tokens(prompts.messages(row, None)[0].content) for row in range(4)]
    assert counts == pytest.approx(EXPECTED["R05"]["input_tokens"], abs=4)


def test_reuse_counts_the_blocks_whose_whole_chain_came_before() -> None:
    # Of 1100 + 700 + 600 + 513 tokens: nothing, 512 + 188, 512, and 512 + 1.
    text = (
        "name: case\nprompts: {source: {kind: trace}, input_tokens: {from: trace}}\n"
        "load: {kind: replay, phases: [{name: rows, shape: replay, "
        f"trace: {{kind: mooncake, path: {CASES / 'traces/R05-mooncake.jsonl'}}}}}]}}\n"
    )
    schedule = plan(understood(text))
    assert reuse_of(schedule, blocks_prompts()) == pytest.approx((700 + 512 + 513) / 2913)


def talks(kind: str, file: str) -> tuple[list[str], Counter[str]]:
    skipped: Counter[str] = Counter()
    source = PromptSource(kind=kind, path=str(CASES / "prompts" / file))  # type: ignore[arg-type] # parametrised
    return [talk.turns[0] for talk in read_talks(source, skipped)], skipped


def test_unusual_sharegpt_rows_are_skipped_by_reason_and_the_user_speaks_first() -> None:
    prompts, skipped = talks("sharegpt", "P01-sharegpt.json")
    assert prompts == EXPECTED["P01"]["first_prompts"]
    assert skipped.total() == EXPECTED["P01"]["skipped"]
    assert set(skipped) == {"no_conversation", "empty_turn", "not_an_object"}


def test_rows_without_a_reply_are_skipped_where_its_length_is_wanted() -> None:
    text = (
        "name: case\nprompts:\n"
        f"  source: {{kind: sharegpt, path: {CASES / 'prompts/P01-sharegpt.json'}}}\n"
        "  order: sequential\n  output_tokens: {from: reply}\n"
        "load: {kind: open, phases: [{name: a, shape: steady, rate_per_s: 3, duration: 1s}]}\n"
    )
    workload = understood(text)
    prompts = PromptSet.load(workload.prompts)
    assert len(prompts) == len(EXPECTED["P01"]["usable_if_reply_needed"])
    assert prompts.skipped["no_reply"] == 1
    schedule = plan(workload, prompts)
    assert schedule.notes["prompts_skipped_no_reply"] == 1
    assert prompts.replies is not None
    assert (schedule.max_tokens == prompts.replies[schedule.prompt_id]).all()
    assert prompts.replies.tolist() == [estimate_tokens(t) for t in ("Rhine, Nile, Ob.", "And so on.", "hi")]


def test_a_sharegpt_file_without_a_usable_row_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text('[{"conversations": []}, 3]', encoding="utf-8")
    with pytest.raises(InputError, match=r"no prompt.*1 no_conversation, 1 not_an_object"):
        list(read_talks(PromptSource(kind="sharegpt", path=str(tmp_path / "none.json")), Counter()))


def test_empty_prompts_are_faults_with_lines_and_blank_ones_are_kept(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        talks("jsonl", "P03-blank.jsonl")
    assert [fault.line for fault in caught.value.faults] == EXPECTED["P03"]["rejected_lines"]
    rows = (CASES / "prompts/P03-blank.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "kept.jsonl").write_text("\n".join(rows[1:4]), encoding="utf-8")
    source = PromptSource(kind="jsonl", path=str(tmp_path / "kept.jsonl"))
    assert [talk.turns[0] for talk in read_talks(source, Counter())] == EXPECTED["P03"]["sendable"]


def test_bytes_that_are_not_utf_8_are_faults_with_line_and_offset() -> None:
    with pytest.raises(SpecError) as caught:
        talks("jsonl", "P04-bad-utf8.jsonl")
    data = (CASES / "prompts/P04-bad-utf8.jsonl").read_bytes()
    assert [fault.line for fault in caught.value.faults] == EXPECTED["P04"]["bad_lines"]
    for fault, byte in zip(caught.value.faults, (b"\xe6", b"\xe9"), strict=True):
        assert f"offset {data.index(byte)}" in fault.message


def test_a_bom_blank_lines_and_a_missing_last_line_end_change_nothing() -> None:
    assert talks("jsonl", "P05-bom-crlf.jsonl")[0] == EXPECTED["P05"]["prompts"]


@pytest.mark.parametrize(
    ("file", "words"), [("P07-array.jsonl", "one JSON array"), ("P07-two-on-a-line.jsonl", "column")]
)
def test_other_json_than_one_object_per_line_is_refused(file: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        talks("jsonl", file)


def test_prompts_begin_again_in_order_when_there_are_fewer_than_requests() -> None:
    text = (
        "name: case\nprompts:\n"
        f"  source: {{kind: jsonl, path: {CASES / 'prompts/P08-three.jsonl'}}}\n  order: sequential\n"
        "load: {kind: open, arrivals: {process: constant}, "
        "phases: [{name: a, shape: steady, rate_per_s: 10, duration: 1s}]}\n"
    )
    workload = understood(text)
    prompts = PromptSet.load(workload.prompts)
    sent = [prompts.text(int(prompt)) for prompt in plan(workload, prompts).prompt_id]
    assert sent == EXPECTED["P08"]["order_10"]


@pytest.mark.parametrize("kind", ["jsonl", "sharegpt", "text", "oasst"])
def test_a_pointer_in_place_of_prompts_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="git lfs pull"):
        talks(kind, "P09-lfs.jsonl")


def test_every_trace_and_prompt_case_is_tested_here_or_needs_a_whole_run() -> None:
    here = {*KINDS, "R12", "R17", "R18", "P01", "P03", "P04", "P05", "P08"}
    assert here == set(EXPECTED)
