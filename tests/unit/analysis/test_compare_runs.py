"""Comparisons of run folders whose difference is made by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builders import MS, RunSpec, events, row, steady, write_run

from servebench.analysis.compare.result import Asked, Boundary, Comparison, compare, parse_boundary, parse_wanted
from servebench.analysis.compare.sides import pair_up, read_side
from servebench.analysis.compare.words import as_json, as_markdown, as_text, headline
from servebench.core.errors import InputError

COUNT = 240


def made(
    folder: Path,
    *,
    seed: int,
    factor: float = 1.0,
    minute: int = 0,
    failed: int = 0,
    refused: int | None = None,
    **given: Any,  # noqa: ANN401
) -> Path:
    """Write a run whose TTFT is `factor` times that of its seed, give or take 0.5 %.

    `refused` answers did not pass their checks, all others did; None = nothing was asked.
    """
    rng = np.random.default_rng(seed)
    ttft = rng.lognormal(np.log(100), 0.4, COUNT) * factor
    ttft *= np.exp(np.random.default_rng(seed * 1_000 + minute).normal(0, 0.005))
    rows = [
        row(k, sent_ns=k * 100 * MS, ttft_ns=int(ttft[k] * MS), tokens=4, gap_ns=int(10 * MS)) for k in range(COUNT)
    ]
    for index in range(failed):
        rows[index * 7] |= events() | {"outcome": "http_error", "output_tokens": None}
    if refused is not None:
        for index, made_row in enumerate(rows):
            made_row["accepted"] = index >= refused
    manifest = {"seed": seed, "created_utc": f"2026-09-03T12:{minute:02d}:00Z", "schedule_hash": f"{seed:064d}"} | given
    return write_run(folder, RunSpec(rows=rows, phases=[steady("load", 0, COUNT / 10)], manifest=manifest))


def sides(folder: Path, factor: float, *, pairs: int = 4, **given: Any) -> tuple[str, str]:  # noqa: ANN401
    """Write pairs in the order ABBA; `given` changes the manifest of B."""
    for k in range(pairs):
        first, second = (2 * k, 2 * k + 1) if k % 2 == 0 else (2 * k + 1, 2 * k)
        made(folder / "base" / f"a{k}", seed=k + 1, minute=first)
        made(folder / "new" / f"b{k}", seed=k + 1, minute=second, factor=factor, **given)
    return str(folder / "base"), str(folder / "new")


def compared(base: str, candidate: str, **asked: Any) -> Comparison:  # noqa: ANN401
    return compare(pair_up(read_side(base), read_side(candidate)), Asked(**asked))


def test_a_faster_candidate_is_better_by_what_it_is_faster(tmp_path: Path) -> None:
    found = compared(*sides(tmp_path, 0.8, declared={"engine": "sim", "flags": "fast"}))
    line = found.find(parse_wanted("ttft.p95"))
    assert line is not None
    assert line.difference.change == pytest.approx(-0.2, abs=0.015)
    assert line.difference.lo is not None
    assert line.difference.hi is not None
    assert line.difference.lo < -0.2 < line.difference.hi
    assert line.verdict == "better"
    assert found.judgement.change is not None
    assert found.judgement.change.name == "flags"
    assert found.acceptance == "ACCEPTED"
    assert headline(found).startswith("✓ B ACCEPTED: TTFT p95 falls by")


def test_equal_sides_are_the_same_and_said_to_be_a_test_of_the_method(tmp_path: Path) -> None:
    found = compared(*sides(tmp_path, 1.0))
    line = found.find(parse_wanted("ttft.p95"))
    assert line is not None
    assert line.verdict == "same within 5 %"
    assert any("A against A" in mark for mark in found.marks)


@pytest.mark.parametrize(("text", "state"), [("ttft.p95<-10%", "holds"), ("ttft.p95<-30%", "broken")])
def test_a_boundary_holds_or_breaks_with_the_whole_interval(tmp_path: Path, text: str, state: str) -> None:
    found = compared(*sides(tmp_path, 0.8), boundaries=(parse_boundary(text),))
    assert (found.boundaries[0][0].text, found.boundaries[0][1]) == (text, state)
    assert found.acceptance == {"holds": "ACCEPTED", "broken": "REJECTED"}[state]
    words = f"({text} broken)"
    assert (words in headline(found)) is (state == "broken")


def test_quality_must_not_drop_even_when_nobody_says_so(tmp_path: Path) -> None:
    for k in range(3):
        made(tmp_path / "base" / f"a{k}", seed=k + 1, minute=2 * k)
        made(tmp_path / "new" / f"b{k}", seed=k + 1, minute=2 * k + 1, factor=0.8, failed=10)
    found = compared(str(tmp_path / "base"), str(tmp_path / "new"))
    assert found.acceptance == "REJECTED"
    assert ("error_rate<+1%", "broken") in [(boundary.text, state) for boundary, state in found.boundaries]


def test_accepted_answers_must_not_get_fewer_even_when_nobody_says_so(tmp_path: Path) -> None:
    for k in range(3):
        made(tmp_path / "base" / f"a{k}", seed=k + 1, minute=2 * k, refused=2)
        made(tmp_path / "new" / f"b{k}", seed=k + 1, minute=2 * k + 1, factor=0.8, refused=14)
    found = compared(str(tmp_path / "base"), str(tmp_path / "new"))
    line = found.find(parse_wanted("accepted_share"))
    assert line is not None
    assert line.difference.change == pytest.approx(-12 / COUNT)
    assert line.verdict == "worse"
    assert found.acceptance == "REJECTED"
    assert ("accepted_share>-1%", "broken") in [(boundary.text, state) for boundary, state in found.boundaries]


def test_one_run_each_shows_both_tables_and_no_verdict(tmp_path: Path) -> None:
    found = compared(*sides(tmp_path, 0.5, pairs=1))
    assert headline(found).startswith("? no verdict")
    assert found.acceptance == "UNDECIDED"
    assert "better" not in as_text(found)
    assert all(line.difference.lo is None for line in found.lines)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"schedule_hash": "f" * 64}, "schedule"),
        ({"declared": {"engine": "sim", "flags": "a", "precision": "fp8"}}, "flags"),
    ],
    ids=["another schedule", "two things at once"],
)
def test_more_than_one_difference_is_refused_and_can_be_allowed(
    tmp_path: Path, given: dict[str, Any], name: str
) -> None:
    base, candidate = sides(tmp_path, 1.0, **given)
    found = compared(base, candidate)
    assert found.lines == ()
    assert name in [item.name for item in found.judgement.refused]
    assert f"--allow {name}" in as_text(found)
    allowed = compared(base, candidate, allowed=(name,))
    assert allowed.lines
    assert any(name in mark for mark in allowed.marks)


def test_another_cache_state_is_refused(tmp_path: Path) -> None:
    base, candidate = sides(tmp_path, 1.0, pairs=3)
    for path in (tmp_path / "new").glob("*/run.json"):
        content = json.loads(path.read_text())
        content["workload"]["target"]["cache"] = "warm"
        path.write_text(json.dumps(content))
    assert [item.name for item in compared(base, candidate).judgement.refused] == ["cache"]


def test_runs_without_a_partner_are_left_out_and_named(tmp_path: Path) -> None:
    base, candidate = sides(tmp_path, 1.0, pairs=3)
    made(tmp_path / "base" / "a9", seed=99, minute=30)
    found = compared(base, candidate)
    assert len(found.pairing.pairs) == 3
    assert any("a9" in mark for mark in found.marks)


def test_sides_that_ran_one_after_the_other_are_marked(tmp_path: Path) -> None:
    for k in range(3):
        made(tmp_path / "base" / f"a{k}", seed=k + 1, minute=k)
        made(tmp_path / "new" / f"b{k}", seed=k + 1, minute=10 + k)
    assert any("drift of the machine" in mark for mark in compared(str(tmp_path / "base"), str(tmp_path / "new")).marks)


def test_every_form_says_the_same_and_holds_no_nan(tmp_path: Path) -> None:
    found = compared(*sides(tmp_path, 0.8))
    text, markdown, content = as_text(found), as_markdown(found), json.loads(as_json(found))
    assert headline(found) in text
    assert headline(found) in markdown
    assert "| TTFT p95 | ms |" in markdown
    assert content["acceptance"] == "ACCEPTED"
    assert "NaN" not in as_json(found)
    assert "nan" not in text


@pytest.mark.parametrize("text", ["ttft<5%", "p95", "ttft.p95<", "tpot.p95 = 3%", "nothing.p95<1%"])
def test_a_boundary_of_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match=r"e\.g\.|there are"):
        parse_boundary(text)


def test_a_floor_is_written_with_the_other_sign() -> None:
    assert parse_boundary("accepted_share > -1%") == Boundary(parse_wanted("accepted_share"), False, -0.01)


def test_a_side_that_names_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run folder"):
        read_side(str(tmp_path))
    with pytest.raises(InputError, match="names no run"):
        read_side(",")


def test_text_of_a_run_is_no_markup_of_a_pull_request_and_no_control_of_a_terminal(tmp_path: Path) -> None:
    nasty = "fp8\x1b[2J|<img src=x>`*"
    found = compared(*sides(tmp_path, 0.8, declared={"engine": "sim", "flags": nasty}))
    assert "\x1b" not in as_text(found) + as_markdown(found)
    assert "<img" not in as_markdown(found)
    assert "&lt;img src=x&gt;\\`\\*" in as_markdown(found)
