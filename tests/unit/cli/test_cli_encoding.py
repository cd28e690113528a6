"""Output where UTF-8 is not spoken, and completion by the shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import small_run

from servebench.cli.encoding import asks_for_ascii, in_ascii

ROOT = Path(__file__).parents[3]


def servebench(*arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SERVEBENCH_")}
    return subprocess.run(
        [sys.executable, "-m", "servebench.cli", *arguments],
        capture_output=True,
        timeout=60,
        check=False,
        env={**kept, "PYTHONPATH": str(ROOT / "src"), **environ},
    )


@given(st.text())
def test_any_text_has_an_ascii_form(text: str) -> None:
    assert in_ascii(text).isascii()
    if text.isascii():
        assert in_ascii(text) == text


def test_signs_keep_their_meaning_and_letters_their_base() -> None:
    assert (
        in_ascii("✓ met, ✗ missed, \N{EN DASH} unknown, 測 é e\u0301 → 5…")
        == "ok met, x missed, - unknown, ? e e -> 5..."
    )


@pytest.mark.parametrize("command", [("table",), ("merge",), ("table", "--format", "md")])
def test_latin_1_gets_signs_that_it_has_and_no_error(command: tuple[str, ...], tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    done = servebench(command[0], str(run), *command[1:], PYTHONIOENCODING="latin-1")
    assert done.returncode in {0, 3}, done.stderr
    assert len(done.stdout) > 100
    assert b"ttft" in done.stdout.lower()
    assert "\N{EN DASH}".encode() not in done.stdout


@pytest.mark.parametrize(
    ("environment", "ascii_asked"),
    [
        ({}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "C", "PYTHONUTF8": "1"}, False),
        ({"LANG": "C", "PYTHONIOENCODING": "utf-8"}, False),
        ({"LC_ALL": "", "LANG": "C.UTF-8"}, False),
    ],
)
def test_a_locale_that_is_c_by_name_asks_for_ascii(environment: dict[str, str], ascii_asked: bool) -> None:
    assert asks_for_ascii(environment) is ascii_asked


def test_lang_c_gets_ascii_though_python_itself_would_write_utf_8(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    locale = {"LC_ALL": "", "LC_CTYPE": "", "PYTHONIOENCODING": "", "PYTHONUTF8": ""}
    plain = servebench("table", str(run), **locale, LANG="C")
    whole = servebench("table", str(run), **locale, LANG="C.UTF-8")
    assert plain.stdout.isascii()
    assert not whole.stdout.isascii()
    assert in_ascii(whole.stdout.decode()) == plain.stdout.decode()


def test_the_simulator_takes_what_every_command_takes() -> None:
    done = servebench("sim", "--color", "never", "--color=auto", "--debug", "--preset", "none")
    assert done.returncode == 2
    assert b"known are demo, fast" in done.stderr


def test_the_shell_completes_commands_and_options() -> None:
    commands = servebench(_SERVEBENCH_COMPLETE="bash_complete", COMP_WORDS="servebench com", COMP_CWORD="1")
    options = servebench(_SERVEBENCH_COMPLETE="bash_complete", COMP_WORDS="servebench run --keep", COMP_CWORD="2")
    assert commands.stdout.decode().split() == ["plain,compare"]
    assert options.stdout.decode().split() == ["plain,--keep-going"]
    assert b"complete" in servebench(_SERVEBENCH_COMPLETE="zsh_source").stdout
