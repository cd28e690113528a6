"""What the master makes of pieces: whole files, once, and nothing outside the run folder whatever a worker says."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest

from servebench.loadgen.channel import StrayMessageError
from servebench.loadgen.master.receiver import PartReceiver
from servebench.loadgen.messages import PartAck, PartPiece

WORKER = "w0-0a1b2c3d"
NAME = f"part-{WORKER}-000000.parquet"
DATA = bytes(range(256)) * 40


def piece(offset: int = 0, length: int = 4096, **more: Any) -> PartPiece:  # noqa: ANN401
    fields: dict[str, Any] = {
        "run_id": "r",
        "worker_id": "id",
        "kind": "requests",
        "name": NAME,
        "offset": offset,
        "size": len(DATA),
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "data": DATA[offset : offset + length],
    }
    return PartPiece(**(fields | more))


class Receiving:
    """A receiver in a folder, and what it answered."""

    def __init__(self, folder: Path) -> None:
        for kind in ("requests", "health", "clock"):
            (folder / kind).mkdir()
        self.acks: list[PartAck] = []
        self.failures: list[BaseException] = []
        self.path = folder / "requests" / NAME
        self.receiver = PartReceiver(folder, lambda ack, _: self.acks.append(ack), self.failures.append)

    def take(self, message: PartPiece) -> PartAck:
        """Give a piece and wait for its answer."""
        before = len(self.acks)
        self.receiver.take(message, WORKER)
        with gevent.Timeout(20):
            while len(self.acks) == before:
                gevent.sleep(0.001)
        return self.acks[-1]

    def send_all(self, step: Callable[[int], int] = lambda _: 4096) -> PartAck:
        """Send the file as a worker does, from the offset of each answer."""
        offset = 0
        while offset < len(DATA):
            ack = self.take(piece(offset, step(offset)))
            offset = ack.offset
        return ack


@pytest.fixture
def receiving(tmp_path: Path) -> Receiving:
    return Receiving(tmp_path)


def test_pieces_become_the_file_under_its_name_only_when_it_is_whole(receiving: Receiving) -> None:
    receiving.take(piece())
    assert not receiving.path.exists()
    ack = receiving.send_all()
    assert (ack.offset, ack.kept) == (len(DATA), True)
    assert receiving.path.read_bytes() == DATA
    assert [path.name for path in receiving.path.parent.iterdir()] == [NAME]


def test_a_piece_that_comes_twice_or_out_of_order_is_answered_with_how_far_the_file_is(receiving: Receiving) -> None:
    receiving.take(piece())
    assert receiving.take(piece()).offset == 4096
    assert receiving.take(piece(8192)).offset == 4096
    assert receiving.send_all().kept
    again = receiving.take(piece())
    assert (again.offset, again.kept) == (len(DATA), True)
    assert receiving.path.read_bytes() == DATA


def test_bytes_that_do_not_give_the_checksum_are_thrown_away_and_asked_for_again(receiving: Receiving) -> None:
    ack = receiving.take(piece(0, len(DATA), data=b"x" * len(DATA)))
    assert (ack.offset, ack.kept) == (0, False)
    assert not list(receiving.path.parent.iterdir())
    assert receiving.send_all().kept


def test_a_file_that_the_master_did_not_write_is_not_claimed_as_its_own(receiving: Receiving) -> None:
    receiving.path.write_bytes(DATA)
    ack = receiving.take(piece())
    assert (ack.offset, ack.kept) == (len(DATA), False), "the worker may share the folder and must not remove it"


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": f"../../{NAME}"},
        {"name": "/etc/cron.d/x"},
        {"name": "run.json"},
        {"name": "part-w1-0a1b2c3d-000000.parquet"},
        {"kind": "../requests"},
        {"kind": "tables"},
        {"offset": -1},
        {"offset": len(DATA)},
        {"size": 1 << 40},
        {"size": 10},
        {"data": b""},
    ],
)
def test_a_piece_that_no_worker_of_ours_would_send_is_refused(receiving: Receiving, wrong: dict[str, Any]) -> None:
    with pytest.raises(StrayMessageError):
        receiving.receiver.take(piece(**wrong), WORKER)
    assert not list(receiving.path.parent.iterdir())


def test_a_folder_that_cannot_be_written_is_told_to_the_worker_and_ends_the_run(receiving: Receiving) -> None:
    receiving.path.parent.rmdir()
    ack = receiving.take(piece())
    assert "No such file" in (ack.error or "")
    (failure,) = receiving.failures
    assert NAME in str(failure)
