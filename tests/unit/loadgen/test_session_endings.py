"""A worker's part of a run ends, is reported and on disk, however it ends."""

import gc
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import gevent
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servebench.core.units import NS_PER_S
from servebench.inquiry.secrets import Secrets
from servebench.loadgen.hub_ticker import HubTicker
from servebench.loadgen.master.interactive import interactive_workload
from servebench.loadgen.membership import RUN_START
from servebench.loadgen.messages import (
    Arm,
    Closed,
    Lease,
    MembersFrom,
    NeedSeqs,
    PartAck,
    PartPiece,
    Prepare,
    Status,
    Stop,
    WorkerFault,
)
from servebench.loadgen.worker.counting import AnswerCounter
from servebench.loadgen.worker.memory import settle_memory
from servebench.loadgen.worker.permit import NEVER_NS
from servebench.loadgen.worker.session import WorkerSession
from servebench.loadgen.worker.setup import WorkerSetup
from servebench.workload.codec import encode_workload
from servebench.workload.model import Arrivals, EndpointName, Requests, Workload
from servebench.workload.model import Closed as ClosedLoad

RUN_ID = "20260101T000000Z-end-0001"
LIMIT_S = 30


@dataclass
class Outbox:
    """What a session told the master."""

    sent: list[msgspec.Struct] = field(default_factory=list)

    def of(self, kind: type[msgspec.Struct]) -> list[msgspec.Struct]:
        return [message for message in self.sent if isinstance(message, kind)]


@pytest.fixture
def silent_server() -> Iterator[int]:
    """Give a port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """Undo what a worker does to its process."""
    thresholds = gc.get_threshold()
    pool = pa.default_memory_pool()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    pa.set_memory_pool(pool)


def session_of(
    folder: Path,
    port: int,
    workload: Workload,
    outbox: Outbox,
    rate_per_s: float | None = 0,
    *,
    collect: str = "local",
    send: Callable[[msgspec.Struct], None] | None = None,
    counter: AnswerCounter | None = None,
) -> WorkerSession:
    order = Prepare(
        run_id=RUN_ID,
        engine="closed" if workload.closed is not None else "tokens",
        workload=encode_workload(workload).decode(),
        url=f"http://127.0.0.1:{port}",
        model="m",
        master_boot_id="b",
        collect=collect,
    )

    def rate() -> float:
        if rate_per_s is None:
            msg = "no rate"
            raise RuntimeError(msg)
        return rate_per_s

    setup = WorkerSetup(
        worker_id="id-0",
        worker="w0-00000001",
        boot_id="b",
        offset_ns=0,
        sync=None,
        out=folder,
        url=order.url,
        secrets=Secrets(),
        send=send or outbox.sent.append,
        tell_locust=lambda _record, _epoch: None,
        token_rate_per_s=rate,
        counter=counter or AnswerCounter(None),
        ticker=HubTicker(),
    )
    return WorkerSession(order, setup)


def arm(session: WorkerSession) -> None:
    session.arm(Arm(run_id=RUN_ID, epoch_monotonic_ns=time.monotonic_ns(), epoch_unix_ns=time.time_ns()))
    members = (MembersFrom(from_ns=RUN_START, worker_ids=("id-0",)),)
    session.lease(Lease(run_id=RUN_ID, valid_until_ns=NEVER_NS, members=members))


def closed_load(users: int) -> Workload:
    return msgspec.structs.replace(interactive_workload(), closed=ClosedLoad(users=users, requests=users))


def test_a_session_that_was_never_armed_reports_its_end_at_once_and_is_not_armed_any_more(
    tmp_path: Path, silent_server: int
) -> None:
    outbox = Outbox()
    session = session_of(tmp_path, silent_server, interactive_workload(), outbox)
    session.close()
    assert session.closed.is_set()
    assert outbox.sent == [Closed(run_id=RUN_ID, worker_id="id-0", begun=0, rows=0)]
    arm(session)
    assert not (tmp_path / RUN_ID).exists()


@pytest.mark.parametrize(("endpoint", "ready"), [("triton-generate", True), ("openai-chat", False)])
def test_the_tokenizer_is_loaded_before_the_load_where_no_answer_will_bring_a_count(
    tmp_path: Path, silent_server: int, endpoint: EndpointName, ready: bool
) -> None:
    workload, counter = interactive_workload(), AnswerCounter(None)
    target = msgspec.structs.replace(workload.target, endpoint=endpoint)
    session_of(tmp_path, silent_server, msgspec.structs.replace(workload, target=target), Outbox(), counter=counter)
    assert counter.ready == ready


def test_a_stop_without_drain_ends_closed_load_that_waits_for_answers(tmp_path: Path, silent_server: int) -> None:
    outbox = Outbox()
    session = session_of(tmp_path, silent_server, closed_load(users=3), outbox)
    arm(session)
    session.add_block(0, 3)
    with gevent.Timeout(LIMIT_S):
        while not any(isinstance(m, Status) and m.totals.inflight == 3 for m in outbox.sent):
            gevent.sleep(0.01)
    session.stop(Stop(run_id=RUN_ID, stop_ns=1, drain_ns=0))
    session.close()
    assert session.closed.wait(LIMIT_S)
    rows = pq.read_table(tmp_path / RUN_ID / "requests").to_pylist()
    assert sorted((row["seq"], row["outcome"]) for row in rows) == [(seq, "cancelled") for seq in range(3)]
    assert [message.rows for message in outbox.of(Closed)] == [3]  # type: ignore[attr-defined]


def test_of_two_stops_the_shorter_drain_holds(tmp_path: Path, silent_server: int) -> None:
    outbox = Outbox()
    session = session_of(tmp_path, silent_server, closed_load(users=2), outbox)
    arm(session)
    session.add_block(0, 2)
    with gevent.Timeout(LIMIT_S):
        while not any(isinstance(m, Status) and m.totals.inflight == 2 for m in outbox.sent):
            gevent.sleep(0.01)
    session.stop(Stop(run_id=RUN_ID, stop_ns=1, drain_ns=0))
    session.stop(Stop(run_id=RUN_ID, stop_ns=2, drain_ns=3600 * 10**9))
    session.close()
    assert session.closed.wait(LIMIT_S)
    assert [message.rows for message in outbox.of(Closed)] == [2]  # type: ignore[attr-defined]


def test_a_session_that_is_asked_again_reports_its_end_again(tmp_path: Path, silent_server: int) -> None:
    outbox = Outbox()
    session = session_of(tmp_path, silent_server, interactive_workload(), outbox)
    session.close()
    session.close()
    assert outbox.sent == [Closed(run_id=RUN_ID, worker_id="id-0", begun=0, rows=0)] * 2


def test_an_engine_that_fails_is_told_of_and_leaves_nothing_running(tmp_path: Path, silent_server: int) -> None:
    outbox, callbacks = Outbox(), list(gc.callbacks)
    session = session_of(tmp_path, silent_server, interactive_workload(), outbox, rate_per_s=None)
    arm(session)
    assert session.closed.wait(LIMIT_S)
    assert [message.text for message in outbox.of(WorkerFault)] == ["no rate"]  # type: ignore[attr-defined]
    assert len(outbox.of(Closed)) == 1
    assert not outbox.of(NeedSeqs)
    assert gc.callbacks == callbacks


@pytest.fixture
def busy_server() -> Iterator[int]:
    """Give a port that answers every request with 503 and asks for a pause longer than a test may take."""
    head = b"HTTP/1.1 503 Busy\r\nRetry-After: 59\r\nContent-Length: 2\r\n\r\n{}"

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            self.wfile.write(head)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


@pytest.mark.parametrize("way", ["stop", "cancel"])
def test_a_request_that_waits_for_its_retry_ends_with_the_stop_and_has_a_row_that_says_so(
    way: str, tmp_path: Path, busy_server: int
) -> None:
    outbox = Outbox()
    load = msgspec.structs.replace(closed_load(users=3), requests=Requests(retries=4))
    session = session_of(tmp_path, busy_server, load, outbox)
    arm(session)
    session.add_block(0, 3)
    told = tmp_path / RUN_ID
    with gevent.Timeout(LIMIT_S):
        while not any(isinstance(m, Status) and m.totals.inflight == 3 for m in outbox.sent):
            gevent.sleep(0.01)
        gevent.sleep(0.5)  # the answers are here, the pauses have begun
    far_ns = LIMIT_S * 10 * NS_PER_S
    session.stop(Stop(run_id=RUN_ID, stop_ns=far_ns if way == "cancel" else 1, drain_ns=far_ns))
    if way == "cancel":
        session.cancel_now()
        session.stop(Stop(run_id=RUN_ID, stop_ns=1, drain_ns=0))
    session.close()
    assert session.closed.wait(LIMIT_S), "the pause of 59 s was waited for"
    rows = pq.read_table(told / "requests").to_pylist()
    found = sorted((row["seq"], row["attempt"], row["outcome"], row["error_class"]) for row in rows)
    refused = [(seq, 0, "http_error", "http_503") for seq in range(3)]
    assert found == sorted([*refused, *((seq, 1, "cancelled", "run_stopped") for seq in range(3))])
    assert all((row["sent_ns"] is None) == (row["attempt"] == 1) for row in rows)


def test_a_run_that_cannot_begin_here_is_over_at_once_and_says_why(tmp_path: Path, silent_server: int) -> None:
    outbox = Outbox()
    law = Arrivals(process="onoff", on_ns=NS_PER_S, off_ns=NS_PER_S, inside=Arrivals())
    by_hand = msgspec.structs.replace(interactive_workload(), arrivals=law)
    session = session_of(tmp_path, silent_server, by_hand, outbox)
    arm(session)
    assert session.closed.is_set()
    (fault,) = outbox.of(WorkerFault)
    assert isinstance(fault, WorkerFault)
    assert (fault.exit_code, "run this workload headless" in fault.text) == (2, True)
    assert [type(message) for message in outbox.sent[-2:]] == [WorkerFault, Closed]
    arm(session)
    assert len(outbox.of(Closed)) == 1
    session.close()  # the master may have missed the report
    assert outbox.of(Closed)[1:] == outbox.of(Closed)[:1]


def test_a_worker_that_is_told_to_go_stays_until_its_parts_have_arrived(
    tmp_path: Path, silent_server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servebench.loadgen.worker.session.WRITE_LIMIT_S", 1.0)
    outbox, arrived = Outbox(), list[str]()

    def send(message: msgspec.Struct) -> None:
        outbox.sent.append(message)
        if isinstance(message, PartPiece):
            gevent.spawn_later(1.0, acknowledge, message)

    def acknowledge(piece: PartPiece) -> None:
        end = piece.offset + len(piece.data)
        if end == piece.size:
            arrived.append(f"{piece.kind}/{piece.name}")
        ack = PartAck(
            run_id=RUN_ID, kind=piece.kind, name=piece.name, asked=piece.offset, offset=end, kept=end == piece.size
        )
        session.on_ack(ack)

    session = session_of(tmp_path, silent_server, closed_load(users=1), outbox, collect="master", send=send)
    arm(session)
    session.add_block(0, 1)
    with gevent.Timeout(LIMIT_S):
        while not any(isinstance(m, Status) and m.totals.inflight == 1 for m in outbox.sent):
            gevent.sleep(0.01)
        session.leave(drain_ns=0)
    assert session.closed.is_set()
    assert [name for name in arrived if name.startswith("requests/")]
    assert not list((tmp_path / RUN_ID / "requests").iterdir()), "a part stayed behind"


class Cycle:
    """What a session is to the collector: an object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_an_earlier_run_left_is_collected_when_the_next_one_settles() -> None:
    left = Cycle()
    gone = weakref.ref(left)
    settle_memory()
    del left
    settle_memory()
    assert gone() is None
