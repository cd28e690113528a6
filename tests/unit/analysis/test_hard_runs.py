"""Runs that were damaged, edited or made elsewhere: each gives a word and the right exit code, and no wrong number."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import MS, Row, RunSpec, S, events, row, steady, write_part, write_run

from servebench.analysis.digest import Digest, examine
from servebench.analysis.merge import summary_json
from servebench.analysis.text import summary_lines
from servebench.analysis.verdict import exit_code
from servebench.core.errors import ShardError
from servebench.shards.manifest import PhaseRecord, StepRecord
from servebench.workload.model import Closed

SECONDS = 20
DAY = 86_400 * S


def rows() -> list[Row]:
    return [row(seq, sent_ns=seq * S, tokens=5) for seq in range(SECONDS)]


def written(folder: Path, made: list[Row], *phases: PhaseRecord, **manifest: Any) -> Path:  # noqa: ANN401
    return write_run(folder, RunSpec(rows=made, phases=list(phases) or [steady("load", 0, SECONDS)], manifest=manifest))


def look(folder: Path) -> tuple[int, str, Digest]:
    found = examine(folder).digest
    verdict = found.manifest.verdict
    assert verdict is not None
    assert b"Infinity" not in summary_json(found)
    assert b"NaN" not in summary_json(found)
    assert summary_lines(found, "run", show_invalid=True)
    return exit_code(verdict), " | ".join(verdict.reasons), found


def all_rows(**values: Any) -> Callable[[list[Row]], None]:  # noqa: ANN401 - any column
    def change(made: list[Row]) -> None:
        for one in made:
            one.update(values)

    return change


def first_row(**values: Any) -> Callable[[list[Row]], None]:  # noqa: ANN401 - any column
    return lambda made: made[0].update(values)


def shorter(name: str) -> Callable[[list[Row]], None]:
    return lambda made: made[0].update({name: made[0][name][:-1]})


NO_LISTS = dict.fromkeys(events())
REFUSED = "a part could not be used: requests/part-w0-aaaaaaaa-000000.parquet "


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (first_row(seq=None), "lacks seq in 1 of 10 rows"),
        (first_row(attempt=None), "lacks attempt in 1 of 10 rows"),
        (first_row(worker=None), "lacks worker in 1 of 10 rows"),
        (first_row(phase=None), "lacks phase in 1 of 10 rows"),
        (first_row(measured=None), "lacks measured in 1 of 10 rows"),
        (first_row(outcome=None), "lacks outcome in 1 of 10 rows"),
        (first_row(seq=-4), "has seq below 0 in 1 of 10 rows"),
        (first_row(attempt=-1), "has attempt below 0 in 1 of 10 rows"),
        (first_row(output_tokens=-1), "has output_tokens below 0 in 1 of 10 rows"),
        (first_row(input_tokens=-7), "has input_tokens below 0 in 1 of 10 rows"),
        (first_row(cached_tokens=-7), "has cached_tokens below 0 in 1 of 10 rows"),
        (first_row(chunk_tokens=[-3] * 6), "has events with tokens below 0"),
        (shorter("chunk_kind"), "has rows whose lists chunk_ns and chunk_kind differ in length"),
        (shorter("chunk_read"), "has rows whose lists chunk_ns and chunk_read differ in length"),
        (first_row(chunk_tokens=[1, 2, 1]), "has rows whose lists chunk_ns and chunk_tokens differ in length"),
        (first_row(chunk_choice=[0, 1]), "has rows whose lists chunk_ns and chunk_choice differ in length"),
        (shorter("chunk_ns"), "has rows whose lists chunk_ns and chunk_kind differ in length"),
    ],
)
def test_a_part_with_a_row_that_no_worker_writes_is_not_used(
    tmp_path: Path, damage: Callable[[list[Row]], None], words: str
) -> None:
    made = rows()
    piles = (made[0::2], made[1::2])
    folder = written(tmp_path / "run", made)
    damage(piles[0])
    (path, other) = sorted((folder / "requests").iterdir())
    table = pa.Table.from_pylist(piles[0], schema=pq.read_schema(path))
    pq.write_table(table, path)
    code, said, found = look(folder)
    assert code == 3
    assert REFUSED + words in said
    assert "10 of 20 requests of phase load were lost" in said
    assert found.counts.ok == pq.read_metadata(other).num_rows


def test_a_run_of_which_no_part_can_be_used_says_that_first_and_asks_for_no_other_run(tmp_path: Path) -> None:
    made = rows()
    all_rows(output_tokens=-1)(made)
    code, said, _ = look(written(tmp_path / "run", made))
    assert code == 3
    assert said.startswith("no part could be used; what is wrong with each stands below")
    assert "servebench run" not in said


def test_lists_that_one_row_has_too_long_do_not_make_up_for_those_that_another_has_too_short(tmp_path: Path) -> None:
    made = rows()
    made[0]["chunk_kind"] = made[0]["chunk_kind"][:-1]
    made[2]["chunk_kind"] = [*made[2]["chunk_kind"], "content"]
    code, said, _ = look(written(tmp_path / "run", made))
    assert code == 3
    assert "differ in length" in said


@pytest.mark.parametrize(
    "damage",
    [
        lambda one: one.update(end_ns=one["sent_ns"] - 5),
        lambda one: one.update(headers_ns=one["sent_ns"] - 5),
        lambda one: one.update(end_ns=2**62),
        lambda one: one.update(sent_ns=-(2**63)),
        lambda one: one.update(sent_ns=None),
        lambda one: one.update(end_ns=None),
        lambda one: one.update(chunk_ns=one["chunk_ns"][::-1]),
        lambda one: one.update(chunk_ns=[2**62] * 6),
        lambda one: one.update(chunk_ns=[one["sent_ns"] - 1] * 6),
        lambda one: one.update(end_ns=one["end_ns"] - 5 * MS),
    ],
)
def test_impossible_times_of_a_few_answers_are_told_and_of_many_make_the_run_invalid(
    tmp_path: Path, damage: Callable[[Row], None]
) -> None:
    few, many = rows(), rows()
    damage(few[0])
    for one in many[:4]:
        damage(one)
    code, said, found = look(written(tmp_path / "few", few))
    assert code == 0
    assert "1 answer holds times that cannot be" in said
    e2e = found.table.find("e2e", "load")
    assert e2e is not None
    assert e2e.max is not None
    assert e2e.max <= 140
    code, said, _ = look(written(tmp_path / "many", many))
    assert code == 3
    assert "4 of 20 answers hold times that cannot be" in said


def test_a_run_of_which_every_answer_is_impossible_is_invalid_however_small(tmp_path: Path) -> None:
    made = rows()[:2]
    for one in made:
        one["end_ns"] = one["sent_ns"] - 1
    code, said, _ = look(written(tmp_path / "run", made, steady("load", 0, 2)))
    assert code == 3
    assert "2 of 2 answers hold times that cannot be" in said


def test_an_event_may_be_a_tick_of_its_rounding_behind_the_end(tmp_path: Path) -> None:
    made = rows()
    for one in made:
        one["end_ns"] -= 1_000
    assert look(written(tmp_path / "run", made))[:2] == (0, "")


def staircase(*steps: tuple[float, float]) -> PhaseRecord:
    levels = [
        StepRecord(index=index, start_ns=round(start * S), end_ns=round(end * S), rate_per_s=1.0)
        for index, (start, end) in enumerate(steps)
    ]
    return steady("load", 0, SECONDS, shape="steps", steps=levels)


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ([steady("load", 0, 12), steady("b", 10, 20)], "phases load and b overlap by 2.00 s"),
        ([steady("a", 0, 12, measured=False), steady("load", 10, 20)], "phases a and load overlap by 2.00 s"),
        ([steady("load", 0, 10), steady("load", 10, 20)], '2 phases are named "load"'),
        ([steady("load", 0, 20), steady("b", 5, 6)], "phases load and b overlap by 1.00 s"),
        ([staircase((0, 12), (8, 20))], "levels 1 and 2 of phase load overlap by 4.00 s"),
        ([steady("b", 0, 20)], '20 rows are of a phase "load" that run.json does not name'),
        ([steady("load", -1000, -900)], "20 of 20 requests of phase load were planned outside its time"),
        ([steady("load", 0, 20, measured=False)], "20 rows of phase load say measured = true, run.json says false"),
    ],
)
def test_phases_that_contradict_each_other_or_the_rows_make_a_run_invalid(
    tmp_path: Path, phases: list[PhaseRecord], words: str
) -> None:
    code, said, _ = look(written(tmp_path / "run", rows(), *phases))
    assert code == 3
    assert words in said


def test_phases_that_meet_and_those_with_a_pause_between_them_are_fine(tmp_path: Path) -> None:
    made = rows()
    for one in made[10:]:
        one["phase"] = "b"
    assert look(written(tmp_path / "meet", made, steady("load", 0, 10), steady("b", 10, 20)))[:2] == (0, "")
    for one in made[10:]:
        for name in ("intended_ns", "dispatched_ns", "sent_ns", "headers_ns", "end_ns"):
            one[name] += 5 * S
        one["chunk_ns"] = [ns + 5 * S for ns in one["chunk_ns"]]
    assert look(written(tmp_path / "pause", made, steady("load", 0, 10), steady("b", 15, 25)))[:2] == (0, "")


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (steady("load", 0, SECONDS), (0, "")),
        (steady("load", -1000, -900), (3, "4 of 4 requests of phase load were planned outside its time in run.json")),
    ],
)
def test_later_turns_of_conversations_may_begin_after_their_phase_and_first_ones_may_not(
    tmp_path: Path, phase: PhaseRecord, expected: tuple[int, str]
) -> None:
    think_s = 30
    made = [
        row(5 * session + turn, sent_ns=(session + turn * think_s) * S, session=session, turn=turn)
        for session in range(4)
        for turn in range(5)
    ]
    code, said, _ = look(written(tmp_path / "run", made, phase))
    assert code == expected[0]
    assert said.partition(";")[0] == expected[1]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"phases": [steady("load", 0, 91 * 86_400)]}, "phase load lasts 91.0 days"),
        ({"clock": {"w0-aaaaaaaa": [[0, 91 * DAY, 0]]}}, "a knot of clock is"),
        ({"clock": {"w0-aaaaaaaa": [[10]]}}, "a knot of clock is"),
        ({"clock": {"w0-aaaaaaaa": [[10, 5, 0], [0, 3, 0]]}}, "in order of t_ns"),
    ],
)
def test_a_manifest_with_absurd_times_is_refused_with_the_place(
    tmp_path: Path, manifest: dict[str, Any], words: str
) -> None:
    with pytest.raises(ShardError, match=words):
        examine(written(tmp_path / "run", rows(), **manifest))


def test_a_seq_far_beyond_the_plan_costs_no_memory_where_the_master_died(tmp_path: Path) -> None:
    made = rows()
    made[0]["seq"] = 2**62
    code, said, _ = look(written(tmp_path / "run", made, stop_cause=None, planned=None))
    assert code == 130
    assert "1 requests lie beyond the 20 planned" in said


def test_a_row_counted_in_two_parts_is_told_wherever_the_copy_lies(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", rows())
    first = sorted((folder / "requests").iterdir())[0]
    shutil.copy(first, first.with_name("part-w9-bbbbbbbb-000007.parquet"))
    code, said, _ = look(folder)
    assert code == 3
    assert "10 rows repeat the (seq, attempt) of another" in said


@pytest.mark.parametrize("lists", [NO_LISTS, events()])
def test_answers_without_any_event_have_no_time_to_first_token(tmp_path: Path, lists: Row) -> None:
    made = rows()
    all_rows(**lists)(made)
    code, _, found = look(written(tmp_path / "run", made))
    ttft = found.table.find("ttft", "load")
    assert code == 0
    assert ttft is not None
    assert (ttft.n, ttft.p50) == (0, None)


def test_a_part_of_another_run_among_ours_is_named_and_not_counted(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", rows())
    write_part(folder / "requests" / "part-w5-cccccccc-000000.parquet", rows()[:3], run_id="another")
    code, said, found = look(folder)
    assert code == 0
    assert 'part-w5-cccccccc-000000.parquet belongs to run "another"' in said
    assert found.counts.ok == SECONDS


def test_a_closed_run_says_its_users_and_not_what_was_planned(tmp_path: Path) -> None:
    made = rows()
    all_rows(intended_ns=None)(made)
    spec = RunSpec(rows=made, phases=[steady("load", 0, SECONDS)]).build_manifest()
    workload = dict(spec.workload) | {"closed": msgspec.to_builtins(Closed(users=3, requests=SECONDS)), "phases": []}
    _, _, found = look(written(tmp_path / "run", made, engine="closed", planned=None, workload=workload))
    text = " ".join(" ".join(summary_lines(found, "run")).split())
    assert "Closed load of 3 users: sent 1.00 req/s, answered 1.00." in text
    assert "Planned" not in text
