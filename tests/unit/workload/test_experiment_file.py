"""What an experiment file may say, and the order of its runs."""

from collections import Counter
from pathlib import Path

import pytest

from servebench.core.errors import InputError, SpecError
from servebench.workload.experiment import load_experiment, turns
from servebench.workload.load import load_workload

SOUND = """\
name: batching
workload: builtin:demo
url: http://127.0.0.1:8000
variants:
  - name: base
  - name: larger
    command: [serve, --max-num-seqs, "64"]
    declared: {max_num_seqs: 64}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


def test_a_short_file_gets_the_defaults_of_a_sound_design(tmp_path: Path) -> None:
    spec = load_experiment(written(tmp_path, SOUND))
    assert (spec.repeats, spec.order, spec.cache) == (5, "abba", ("as-declared",))
    assert spec.variants[1].command == ("serve", "--max-num-seqs", "64")
    assert spec.variants[1].declared == {"max_num_seqs": "64"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("name: larger", "name: base", 'line 6  variants[1].name  "base" is the name of two variants'),
        ("url: http://127.0.0.1:8000\n", "", "variants[0].url  missing, and the experiment names no url either"),
        ("name: batching", "nam: batching", "unknown key; did you mean name?"),
        ("command: [serve", "comand: [serve", "unknown key; did you mean command?"),
        ('command: [serve, --max-num-seqs, "64"]', "command: serve --fast", "is not a list"),
        ('command: [serve, --max-num-seqs, "64"]', "command: []", "is empty"),
        ("url: http", "repeats: 0\nurl: http", "must be >= 1"),
        ("url: http", "order: abab\nurl: http", "did you mean abba?"),
        ("url: http", "cache: [cold, cold]\nurl: http", "the same state twice"),
        ("url: http", "pause: 5\nurl: http", "has no unit"),
        ("  - name: base\n", "", "variants  has 1; at least 2 are wanted"),
    ],
)
def test_a_wrong_file_is_refused_with_place_and_way_out(tmp_path: Path, before: str, after: str, words: str) -> None:
    assert before in SOUND
    with pytest.raises(SpecError) as refused:
        load_experiment(written(tmp_path, SOUND.replace(before, after)))
    assert words in str(refused.value)


PLANS = sorted((Path(__file__).parents[3] / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_shipped_plan_holds_and_declares_what_it_changes(path: Path) -> None:
    spec = load_experiment(path)
    load_workload(path.parent / spec.workload)
    assert {spec.compare.change} == {name for variant in spec.variants for name in variant.declared}
    assert len({variant.declared[str(spec.compare.change)] for variant in spec.variants}) == len(spec.variants)
    assert path.read_text().startswith("# Question:")


def test_a_file_that_is_not_there_or_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the experiment file"):
        load_experiment(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="mapping"):
        load_experiment(written(tmp_path, "- a\n- b\n"))


def test_rounds_turn_round_so_that_a_drift_falls_on_all_alike() -> None:
    order = [turn.variant for turn in turns(["a", "b"], 4, "abba", ["as-declared"], 0)]
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    places: dict[str, list[int]] = {"a": [], "b": []}
    for index, name in enumerate(order):
        places[name].append(index)
    assert sum(places["a"]) == sum(places["b"])


def test_every_round_has_each_variant_once_in_each_state() -> None:
    order = turns(["a", "b", "c"], 5, "random", ["as-declared", "cold"], 7)
    assert order == turns(["a", "b", "c"], 5, "random", ["as-declared", "cold"], 7)
    assert order != turns(["a", "b", "c"], 5, "random", ["as-declared", "cold"], 8)
    assert Counter(order) == {
        (number, name, cache): 1 for number in range(5) for name in "abc" for cache in ("as-declared", "cold")
    }
    assert [turn.number for turn in order] == sorted(turn.number for turn in order)
