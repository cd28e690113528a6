"""What holds for every command alike: help, misspellings, errors, streams without colours, widths, encodings."""

import io
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import pytest
from tests.builders import RunSpec, row, small_run, steady, write_run

from servebench.analysis.render import width
from servebench.cli.base import COLOR_WISHES
from servebench.cli.main import COMMANDS, cli, main

S = 1_000_000_000
WORKLOAD = """
name: wide
seed: 1
target: {endpoint: openai-chat, model: tiny}
prompts: {source: {kind: mt-bench}, output_tokens: {from: fixed, tokens: 8}}
load:
  kind: open
  arrivals: {process: poisson}
  phases:
    - {name: short, shape: steady, rate_per_s: 10, duration: 20s}
    - {name: a-phase-with-a-long-name, shape: steady, rate_per_s: 10, duration: 20s}
"""
PLAN = """
name: chunking
workload: workload.yaml
variants:
  - {name: one, url: "http://127.0.0.1:8001"}
  - {name: two, url: "http://127.0.0.1:8002"}
"""
READING: dict[str, tuple[str, ...]] = {
    "table": ("table", "RUN", "--by", "phase,worker"),
    "table-explained": ("table", "--explain", "ttft"),
    "merge": ("merge", "RUN", "--show-invalid"),
    "report": ("report", "RUN"),
    "cost": ("cost", "RUN", "--output-price", "0.6"),
    "compare": ("compare", "RUN", "OTHER"),
    "export": ("export", "RUN", "--format", "csv"),
    "plan": ("plan", "workload.yaml"),
    "schema": ("schema", "--summary"),
}
"""Commands that need no service, by name of the case; RUN and OTHER stand for two run folders."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder whose name has a blank, with two runs and a workload in it."""
    here = tmp_path / "my work"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in list(os.environ):
        if name.startswith("SERVEBENCH_") or name in {"NO_COLOR", "COLUMNS", "LINES"}:
            monkeypatch.delenv(name)
    (here / "workload.yaml").write_text(WORKLOAD, encoding="utf-8")
    rows = [row(seq, sent_ns=seq * S // 10, phase="測試" if seq < 200 else "e\u0301te\u0301") for seq in range(400)]
    phases = [steady("測試", 0, 20), steady("e\u0301te\u0301", 20, 40)]
    write_run(here / "run a", RunSpec(rows=rows, phases=phases))
    small_run(here / "run b")
    return here


class Said:
    """Runs a command line in this process; keeps its exit code and what it wrote."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        words = [{"RUN": "run a", "OTHER": "run b"}.get(word, word) for word in arguments]
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, err = self._capsys.readouterr()
        return int(ended.value.code or 0), out, err


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def _command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def _examples(name: str) -> list[str]:
    examples: tuple[str, ...] = _command(name).examples  # type: ignore[attr-defined] # of our own class
    return list(examples)


@pytest.mark.parametrize("name", COMMANDS)
def test_both_examples_of_the_help_are_taken_by_the_command_itself(name: str, tmp_path: Path) -> None:
    for example in _examples(name):
        program, first, *rest = shlex.split(example.partition(" > ")[0])
        assert (program, first) == ("servebench", name)
        _command(name).make_context(name, rest, obj={})


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_is_suggested_when_two_letters_are_swapped(name: str, said: Said) -> None:
    command = _command(name)
    known = {word for param in command.get_params(click.Context(command)) for word in param.opts}
    tried = 0
    for word in sorted(known):
        swapped = f"{word[:-2]}{word[-1]}{word[-2]}"
        if not word.startswith("--") or len(word) < 7 or swapped == word or swapped in known:
            continue
        tried += 1
        code, out, err = said(name, swapped)
        assert (code, out) == (2, "")
        first, second = err.splitlines()
        assert re.fullmatch(rf"error: no such option {swapped}\. Did you mean --[a-z-]+\?", first), err
        assert second == f"  try: servebench {name} --help"
    assert tried > 0


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_suggested_when_its_name_lacks_a_letter(name: str, said: Said) -> None:
    code, out, err = said(name[:1] + name[2:])
    assert (code, out) == (2, "")
    assert err.startswith(f"error: no such command {name[:1] + name[2:]}.")
    assert re.search(r"Did you mean [a-z]+\?|There are: ", err)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_wish_for_colours(name: str, said: Said) -> None:
    for wish in COLOR_WISHES:
        code, out, _ = said(name, "--color", wish, "--help")
        assert code == 0
        assert f"servebench {name}" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "none.yaml", "--url", "http://127.0.0.1:9"),
        ("run", "--url", "ftp://127.0.0.1", "--rate", "1", "--duration", "1s"),
        ("ui", "none.yaml", "--url", "http://127.0.0.1:9"),
        ("check", "127.0.0.1:9/x y"),
        ("check", "http://127.0.0.1:9"),
        ("plan", "none.yaml"),
        ("table", "none"),
        ("table", "RUN", "--by", "phaze"),
        ("report", "none"),
        ("merge", "none"),
        ("compare", "none", "RUN"),
        ("compare", "RUN", "OTHER", "--primary", "tftt.p95"),
        ("capacity", "none.yaml", "--url", "http://127.0.0.1:9"),
        ("experiment", "none.yaml"),
        ("cost", "none"),
        ("export", "none"),
        ("export", "RUN", "--format", "xml"),
        ("spans", "none"),
        ("schema", "extra"),
        ("master", "--url", "http://127.0.0.1:9", "--expect-workers", "2"),
        ("master", "none.yaml", "--url", "http://127.0.0.1:9", "--expect-workers", "2"),
        ("worker", "--master", "127.0.0.1:port"),
        ("demo", "--workers", "0"),
    ],
    ids=" ".join,
)
def test_wrong_input_is_one_message_on_stderr_with_exit_code_2(
    arguments: tuple[str, ...], said: Said, place: Path
) -> None:
    before = sorted(place.iterdir())
    code, out, err = said(*arguments)
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert "\x1b" not in err
    assert sorted(place.iterdir()) == before


@pytest.mark.parametrize("arguments", READING.values(), ids=READING)
def test_what_goes_into_a_pipe_holds_no_escape_and_no_carriage_return(
    arguments: tuple[str, ...], said: Said, place: Path
) -> None:
    code, out, err = said(*arguments)
    assert code in {0, 1, 2, 3}, err
    assert out
    assert not {"\x1b", "\r"} & set(out + err)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("arguments", READING.values(), ids=READING)
def test_a_stream_that_lacks_utf_8_gets_what_it_has(
    arguments: tuple[str, ...], encoding: str, said: Said, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _, _ = said(*arguments)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
    code, _, err = said(*arguments)
    assert code == whole, err
    raw.getvalue().decode(encoding)
    assert len(raw.getvalue()) > 10


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "RUN", "--format", "json"),
        ("table", "RUN", "--dialects", "--format", "json"),
        ("merge", "RUN", "--json"),
        ("cost", "RUN", "--json"),
        ("compare", "RUN", "OTHER", "--format", "json"),
        ("plan", "workload.yaml", "--json"),
        ("schema",),
        ("schema", "--summary"),
    ],
    ids=" ".join,
)
def test_stdout_is_json_and_nothing_else_where_json_is_asked_for(
    arguments: tuple[str, ...], said: Said, place: Path
) -> None:
    code, out, err = said(*arguments)
    assert code in {0, 1, 2, 3}, err
    assert json.loads(out)


class Terminal(io.StringIO):
    """Stands for a terminal of so many columns where a command asks what stdout is."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize(
    "arguments", [c for n, c in READING.items() if n != "schema"], ids=[n for n in READING if n != "schema"]
)
def test_no_line_is_wider_than_the_terminal(
    arguments: tuple[str, ...], columns: int, said: Said, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", terminal)
    said(*arguments)
    lines = terminal.getvalue().splitlines()
    assert lines
    # What is to be pasted stays whole, and so does a word.
    prose = [line for line in lines if " " in line.strip() and not line.strip().startswith(("try:", "Next"))]
    assert [line for line in prose if width(line) > columns] == []


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_the_terminal(name: str, columns: int, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = said(name, "--help")
    _, *rest = [line for line in out.splitlines() if not line.startswith("  servebench ")]
    assert [line for line in rest if len(line) > columns] == []


def test_the_command_that_a_summary_ends_with_works_when_it_is_pasted(said: Said, place: Path) -> None:
    _, out, _ = said("merge", "RUN")
    words = shlex.split(out.splitlines()[-1])
    assert words[:2] == ["Next", "servebench"]
    assert str(place / "run a").endswith(words[3])
    code, table, err = said(*words[2:])
    assert code in {0, 3}, err
    assert table.startswith("metric")


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "RUN"),
        ("table", "RUN", "--format", "json"),
        ("merge", "RUN"),
        ("report", "RUN"),
        ("report", "RUN", "OTHER"),
        ("cost", "RUN", "--output-price", "0.6"),
        ("export", "RUN"),
        ("compare", "RUN", "OTHER"),
    ],
    ids=" ".join,
)
def test_whatever_shows_an_invalid_run_says_so_and_exits_3(arguments: tuple[str, ...], said: Said, place: Path) -> None:
    spec = RunSpec(rows=[row(0, sent_ns=0)], phases=[steady("load", 0, 1)], manifest={"planned": 50})
    shutil.rmtree(place / "run a")
    write_run(place / "run a", spec)
    code, out, err = said(*arguments)
    assert code == 3, err
    assert "INVALID" in out + err
    assert "49 of 50" in " ".join((out + err).split()), "with the reason"
