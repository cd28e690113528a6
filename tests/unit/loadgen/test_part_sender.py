"""Sending the last parts has an end, also where their place never answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gevent
import pytest
from gevent.event import Event

from servebench.loadgen.messages import PartAck
from servebench.loadgen.worker.collect import PartSender
from servebench.shards.parts import WrittenPart

LIMIT_S = 30


@dataclass
class Finished:
    """A recorder that has one part."""

    parts: tuple[WrittenPart, ...]


class Hanging:
    """A place that takes a part and never says a word, as a file system whose server is gone."""

    def on_ack(self, _: PartAck) -> None:
        """Nothing comes."""

    def deliver(self, _kind: str, _part: WrittenPart, _give_up: Callable[[], bool]) -> bool:
        return bool(Event().wait())


def test_a_place_that_never_answers_keeps_no_worker_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servebench.loadgen.worker.collect.STUCK_LIMIT_S", 0.1)
    path = tmp_path / "requests" / "part-w0-00000001-000000.parquet"
    path.parent.mkdir()
    path.write_bytes(b"rows")
    sender = PartSender([Finished((WrittenPart(path=path, rows=1, sha256="", chunks=0, bytes=4),))], Hanging())
    with gevent.Timeout(LIMIT_S):
        sender.finish()
    assert "stay here" in str(sender.failure)
    assert path.exists()
    assert not sender.finishing
