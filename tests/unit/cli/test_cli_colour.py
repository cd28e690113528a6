"""When stderr gets colours: the option first, then NO_COLOR, then what the terminal can."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servebench.cli.base import coloured

ROOT = Path(__file__).parents[3]
ESCAPE = "\x1b["


def refused(*options: str, **environ: str) -> str:
    """Return the stderr of a command that ends in an error, which is no terminal here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "NO_COLOR"))}
    found = subprocess.run(
        [sys.executable, "-m", "servebench.cli", "table", "no-such-run", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**kept, "PYTHONPATH": str(ROOT / "src"), **environ},
    )
    assert found.returncode == 2
    assert ESCAPE not in found.stdout
    return found.stderr


def test_what_is_no_terminal_gets_no_escape() -> None:
    assert refused().startswith("error: ")
    assert ESCAPE not in refused("--color", "auto", TERM="xterm-256color")


@pytest.mark.parametrize("options", [("--color", "always"), ("--color=always",)])
def test_colours_that_are_asked_for_come_even_into_a_pipe(options: tuple[str, ...]) -> None:
    said = refused(*options, NO_COLOR="1", TERM="dumb")
    assert said.startswith(f"{ESCAPE}31m{ESCAPE}1merror:")


def test_colours_that_are_refused_do_not_come() -> None:
    assert ESCAPE not in refused("--color", "never")


def test_another_word_is_refused_with_those_that_exist() -> None:
    assert "'always', 'never', 'auto'" in refused("--color", "blue")


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": ""}, False),
    ],
)
def test_a_terminal_gets_them_unless_it_cannot_or_no_color_is_set(
    environ: dict[str, str], shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert coloured() is shown
    assert coloured("always") is True
    assert coloured("never") is False
