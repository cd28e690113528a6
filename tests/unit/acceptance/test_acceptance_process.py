"""The checking process answers in order, each question within its time, and outlives what checks do to it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from servebench.acceptance.given import Given
from servebench.acceptance.letters import Finding, Opened, Opening, Question, Splitter, letter, opened
from servebench.workload.checks import read_check


class Talker:
    """The other side of a checking process: sends letters, reads them one by one."""

    def __init__(self, items: Sequence[dict[str, Any]], folder: Path) -> None:
        self._line, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "servebench.acceptance", str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        self._splitter, self._letters = Splitter(), list[bytes]()
        self._line.sendall(letter(Opening(checks=tuple(read_check(item, folder) for item in items))))
        self.fault = opened(self.read(), Opened).fault

    def read(self) -> bytes:
        while not self._letters:
            data = self._line.recv(1 << 16)
            assert data, "the process ended"
            self._letters += self._splitter.feed(data)
        return self._letters.pop(0)

    def ask(self, number: int, text: str, checks: bytes = b"") -> None:
        self._line.sendall(letter(Question(number=number, given=Given(text=text), checks=checks)))

    def finding(self) -> Finding:
        return opened(self.read(), Finding)

    def close(self) -> int:
        self._line.close()
        return self.process.wait(20)


@pytest.fixture
def talkers() -> Iterator[list[Talker]]:
    made: list[Talker] = []
    yield made
    for talker in made:
        talker.process.kill()
        talker.process.wait()
        talker.close()


def test_questions_are_answered_in_order_and_the_process_ends_with_its_worker(tmp_path: Path) -> None:
    talker = Talker([{"exact": "7"}], tmp_path)
    assert talker.fault is None
    for number in range(50):
        talker.ask(number, str(number))
    findings = [talker.finding() for _ in range(50)]
    assert [found.number for found in findings] == list(range(50))
    assert [found.number for found in findings if found.accepted] == [7]
    assert all(found.spent_ns > 0 for found in findings)
    assert talker.close() == 0


SLOW = """
import time
def sleeps(answer):
    time.sleep(60)
def spins(answer):
    while True:
        pass
def swallows(answer):
    while True:
        try:
            while True: pass
        except BaseException:
            if len(answer.text) == 1: raise
            answer = type(answer)(text=answer.text[1:])
"""


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"regex": "^(a|aa)+$"}, "a" * 60 + "!"),
        ({"python": "slow:sleeps"}, "x"),
        ({"python": "slow:spins"}, "x"),
        ({"python": "slow:swallows"}, "xyz"),
    ],
    ids=["regex that backtracks without end", "sleep", "endless loop", "swallowed interruptions"],
)
def test_a_check_that_takes_too_long_is_interrupted_and_the_next_answer_is_checked(
    talkers: list[Talker], tmp_path: Path, item: dict[str, Any], text: str
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    talker = Talker([item, {"time_limit": "50ms"}], tmp_path)
    talkers.append(talker)
    begin = time.monotonic()
    talker.ask(1, text)
    found = talker.finding()
    assert (found.accepted, found.reason) == (None, "not checked: took longer than 50ms")
    assert 50e6 <= found.spent_ns <= (time.monotonic() - begin) * 1e9
    talker.ask(2, "")
    assert talker.finding().number == 2


def test_lone_surrogates_of_an_answer_reach_the_checks_as_question_marks(talkers: list[Talker], tmp_path: Path) -> None:
    talker = Talker([{"exact": "a?b"}], tmp_path)
    talkers.append(talker)
    talker.ask(1, "a\ud83db")
    assert talker.finding().accepted


def test_checks_that_cannot_be_applied_are_told_at_once(talkers: list[Talker], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise OSError('no model file')\ndef f(answer): return True\n")
    talker = Talker([{"python": "own:f"}, {"json_schema": {"type": 5}}], tmp_path)
    talkers.append(talker)
    assert talker.fault is not None
    assert "accept[0]" in talker.fault
    assert "OSError: no model file" in talker.fault
    assert "accept[1]" in talker.fault


def test_bytes_may_come_in_any_pieces() -> None:
    messages = [letter(Question(number=n, given=Given(text="x" * n))) for n in range(20)]
    stream, splitter = b"".join(messages), Splitter()
    found = [opened(m, Question).number for byte in stream for m in splitter.feed(bytes([byte]))]
    assert found == list(range(20))
    assert [opened(m, Question).number for m in Splitter().feed(stream)] == found
