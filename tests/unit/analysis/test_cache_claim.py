"""A claimed state of the cache is held against what the answers, or else the engine's counters, say came from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders import Row, RunSpec, S, row, steady, workload, write_run

from servebench.analysis.cache_claim import CacheClaim, cache_claim
from servebench.analysis.digest import digest
from servebench.analysis.engine import Telemetry, read_telemetry
from servebench.analysis.source import RunData, load_run
from servebench.shards.engine_schema import ENGINE_SCHEMA, EngineRow, engine_table
from servebench.shards.parts import PartIdentity, write_table_part
from servebench.workload.model import Conversation, PromptSource, Turns

TOKENS = 1000


def answered(cached: Sequence[int | None], prompts: Sequence[int] | None = None, **given: Any) -> list[Row]:  # noqa: ANN401 - any column
    """Return one answered request a second with prompts of TOKENS tokens, of which so many came from the cache."""
    made = []
    for seq, told in enumerate(cached):
        one = row(seq, sent_ns=seq * S, phase="main")
        prompt = seq if prompts is None else prompts[seq]
        made.append({**one, "input_tokens": TOKENS, "cached_tokens": told, "prompt_id": prompt, **given})
    return made


def run_of(folder: Path, rows: list[Row], cache: str, *, share: float = 0.0, **manifest: Any) -> RunData:  # noqa: ANN401 - any field
    made = workload([])
    made = msgspec.structs.replace(
        made,
        target=msgspec.structs.replace(made.target, cache=cache),
        prompts=msgspec.structs.replace(made.prompts, shared_share=share, **manifest.pop("prompts", {})),
    )
    phases = [steady("main", 0, len(rows))]
    if any(one["phase"] == "cache-warmup" for one in rows):
        phases.insert(0, steady("cache-warmup", 0, 1, measured=False))
    values = {"workload": msgspec.to_builtins(made), **manifest}
    return load_run(write_run(folder / "run", RunSpec(rows=rows, phases=phases, manifest=values)))


def claim_of(run: RunData, telemetry: Telemetry | None = None) -> CacheClaim:
    found = cache_claim(run, telemetry or Telemetry())
    assert found is not None
    return found


def test_nothing_is_said_of_a_cache_that_nobody_claims_anything_of(tmp_path: Path) -> None:
    assert cache_claim(run_of(tmp_path, answered([900] * 10), "undeclared"), Telemetry()) is None


def test_a_cold_run_whose_prompts_the_cache_knew_already_is_told_with_the_share(tmp_path: Path) -> None:
    run = run_of(tmp_path, answered([310] * 10), "cold")
    found = claim_of(run)
    assert (found.state, found.basis, found.n) == ("broken", "answers", 10)
    assert found.cached == pytest.approx(0.31)
    assert found.sentence is not None
    assert "claimed cold, but 31 % of prompt tokens came from the cache" in found.sentence
    assert "restart the server" in found.sentence
    verdict = digest(run).manifest.verdict
    assert verdict is not None
    assert found.sentence in verdict.reasons
    assert verdict.valid


@pytest.mark.parametrize("cached", [[0] * 10, [48] * 10, [None] * 9 + [16]], ids=["none", "a template", "nulls for 0"])
def test_a_cold_run_may_share_the_blocks_of_template_and_salt(tmp_path: Path, cached: list[int | None]) -> None:
    found = claim_of(run_of(tmp_path, answered(cached), "cold"))
    assert (found.state, found.sentence, found.n) == ("holds", None, 10)


def test_a_cold_run_that_sends_its_prompts_again_is_told_that_it_warmed_the_cache_itself(tmp_path: Path) -> None:
    run = run_of(tmp_path, answered([0] * 5 + [992] * 5, prompts=[0, 1, 2, 3, 4] * 2), "cold")
    found = claim_of(run)
    assert found.state == "repeated"
    assert found.cached == pytest.approx(0.496)
    assert found.sent_before == pytest.approx(0.5)
    assert found.sentence is not None
    assert "50 % of prompt tokens came from the cache, since this run sends the same again" in found.sentence


def test_the_history_of_a_conversation_may_come_from_a_cold_cache(tmp_path: Path) -> None:
    rows = answered([0, 1100, 0, 1100])
    for seq, one in enumerate(rows):
        one |= {"session": seq // 2, "turn": seq % 2, "output_tokens": 200, "input_tokens": 1000 + 1000 * (seq % 2)}
    talk = {"conversation": Conversation(turns=Turns(law="fixed", low=2))}
    assert claim_of(run_of(tmp_path, rows, "cold", prompts=talk)).state == "holds"
    rows[1]["cached_tokens"] = rows[3]["cached_tokens"] = 1900
    assert claim_of(run_of(tmp_path / "more", rows, "cold", prompts=talk)).state == "broken"


@pytest.mark.parametrize(("reuse", "state"), [(0.4, "holds"), (0.2, "broken")])
def test_blocks_of_a_trace_are_held_to_the_share_that_the_plan_repeats(
    tmp_path: Path, reuse: float, state: str
) -> None:
    source = {"sources": (PromptSource(kind="trace", path="builtin:mooncake-conversation"),)}
    run = run_of(tmp_path, answered([400] * 10), "cold", prompts=source, plan_reuse={"main": reuse})
    assert claim_of(run).state == state


def test_a_warm_cache_must_know_what_the_pass_before_had_sent(tmp_path: Path) -> None:
    passed = [{**one, "phase": "cache-warmup", "measured": False} for one in answered([0, 0])]
    later = [{**one, "seq": one["seq"] + 2} for one in answered([984, 0], prompts=[0, 1])]
    found = claim_of(run_of(tmp_path, [*passed, *later], "warm"))
    assert (found.state, found.n) == ("broken", 2)
    assert found.cached == pytest.approx(0.492)
    assert found.sentence is not None
    assert "claimed a warm cache, but only 49 % of prompt tokens came from the cache where 100 % had" in found.sentence
    later[1]["cached_tokens"] = 944
    assert claim_of(run_of(tmp_path / "warm", [*passed, *later], "warm")).state == "holds"


@pytest.mark.parametrize(
    ("cached", "state", "words"),
    [
        ([0] + [592] * 9, "holds", None),
        ([0] + [20] * 9, "broken", "claimed a shared prefix, but only 2 % of prompt tokens came from the cache"),
        ([0] + [990] * 9, "broken", "claimed a shared prefix of 54 %, but 89 % of prompt tokens came from the cache"),
    ],
    ids=["as claimed", "no cache", "too much"],
)  # fmt: skip
def test_a_shared_prefix_comes_from_the_cache_and_no_more_than_it(
    tmp_path: Path, cached: list[int], state: str, words: str | None
) -> None:
    found = claim_of(run_of(tmp_path, answered(cached), "shared_prefix", share=0.6))
    assert found.state == state
    assert (found.sentence or "").startswith(words or "")
    assert (found.sentence is None) == (words is None)


def test_short_prompts_say_nothing_of_a_cache_that_works_in_blocks(tmp_path: Path) -> None:
    found = claim_of(run_of(tmp_path, answered([0] * 4, input_tokens=60), "shared_prefix", share=0.5))
    assert found.state == "unknown"
    assert found.sentence is not None
    assert "shorter than blocks" in found.sentence


def pages(folder: Path, queries: Sequence[float], hits: Sequence[float]) -> Telemetry:
    rows = [
        EngineRow(second * S, "http://h/metrics", "vllm", series, None, None, value)
        for series, values in (("prefix_queries", queries), ("prefix_hits", hits))
        for second, value in enumerate(values)
    ]
    run_id = "r"
    identity = PartIdentity(run_id=run_id, worker="master", epoch_monotonic_ns=0, epoch_unix_ns=0, boot_id="b")
    (folder / "engine").mkdir(parents=True)
    write_table_part(folder / "engine", 0, engine_table(rows, run_id=run_id).cast(ENGINE_SCHEMA), identity)
    return read_telemetry(folder, run_id)


@pytest.mark.parametrize(("hits", "state"), [(0, "holds"), (500, "broken")])
def test_without_cached_tokens_in_the_answers_the_counters_of_the_engine_decide(
    tmp_path: Path, hits: int, state: str
) -> None:
    run = run_of(tmp_path, answered([None] * 10), "cold")
    seconds = range(11)
    told = pages(tmp_path / "told", [1000.0 * s for s in seconds], [7.0 + hits * s for s in seconds])
    found = claim_of(run, told)
    assert (found.state, found.basis) == (state, "engine")
    assert found.cached == pytest.approx(hits / 1000)
    assert (found.sentence is None) == (state == "holds")


def test_missing_evidence_is_said_and_is_no_mismatch(tmp_path: Path) -> None:
    found = claim_of(run_of(tmp_path, answered([None] * 4), "cold"))
    assert (found.state, found.basis) == ("unknown", "none")
    assert found.sentence is not None
    assert "cannot be checked" in found.sentence
    assert "--enable-prompt-tokens-details" in found.sentence
