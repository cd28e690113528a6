"""What a run does to a real terminal: a pseudo-terminal stands in for it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
ENGINE = ("sim", "--preset", "fast", "--model", "tiny")
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"


def on_terminal(
    folder: Path,
    *arguments: str,
    stop: Callable[[bytes], bool] = lambda _seen: False,
    number: signal.Signals = signal.SIGINT,
    **environ: str,
) -> tuple[bytes, int]:
    """Run a command whose stderr is a terminal of 80 x 24; returns what it wrote there, and its exit code.

    It gets one signal as soon as `stop` holds for what was seen.
    """
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}}
    environment = {**kept, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", "LANG": "C.UTF-8", **environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "servebench.cli", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=side,
        start_new_session=True,
    )
    os.close(side)
    seen, stopped, deadline = b"", False, time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if select.select([main], [], [], 0.2)[0]:
                try:
                    data = os.read(main, 65536)
                except OSError:  # the other side is closed
                    break
                seen += data
            if not stopped and stop(seen):
                stopped = True
                process.send_signal(number)
        return seen, process.wait(30)
    finally:
        process.kill()
        os.close(main)


@pytest.fixture
def url() -> Iterator[str]:
    command = [sys.executable, "-m", "servebench.cli", *ENGINE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]
        process.terminate()


QUICK = ("--rate", "10", "--duration", "4s", "--input-tokens", "50", "--output-tokens", "8", "--workers", "1")


def test_the_live_screen_is_drawn_and_the_cursor_comes_back(tmp_path: Path, url: str) -> None:
    seen, code = on_terminal(tmp_path, "run", "--url", url, *QUICK, "--no-report")
    assert code in {0, 3}
    text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen).decode()
    assert "TTFT" in text
    assert f"quick   {url}   tiny" in text
    assert seen.rfind(SHOW) > seen.rfind(HIDE) >= 0
    assert max(len(line) for line in text.replace("\r", "\n").split("\n")) <= 80


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_the_cursor_comes_back_after_an_interrupted_run_too(tmp_path: Path, url: str, number: signal.Signals) -> None:
    arguments = ("run", "--url", url, "--rate", "10", "--duration", "10m", "--output-tokens", "8", "--workers", "1")
    seen, code = on_terminal(
        tmp_path, *arguments, "--no-report", stop=lambda so_far: b"in flight" in so_far, number=number
    )
    assert code == 130
    assert b"Stopping: no new requests." in seen
    assert seen.rfind(SHOW) > seen.rfind(HIDE) >= 0


def test_no_color_leaves_the_screen_without_colours(tmp_path: Path, url: str) -> None:
    seen, _ = on_terminal(tmp_path, "run", "--url", url, *QUICK, "--no-report", NO_COLOR="1")
    assert b"TTFT" in seen
    assert re.findall(rb"\x1b\[[0-9;]*3[0-7]m", seen) == []


def test_a_locale_of_c_gets_a_screen_in_ascii(tmp_path: Path, url: str) -> None:
    seen, _ = on_terminal(tmp_path, "run", "--url", url, *QUICK, "--no-report", LANG="C", LC_ALL="", LC_CTYPE="")
    assert b"####" in seen
    assert seen.isascii()


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path, url: str) -> None:
    seen, _ = on_terminal(tmp_path, "run", "--url", url, *QUICK, "--no-report", TERM="dumb")
    assert b"steady" in seen
    assert b"\x1b" not in seen
