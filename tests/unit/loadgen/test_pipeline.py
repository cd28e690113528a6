"""Each planned request is one task of a user's locustfile, and what the task does is the outcome of its row."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import gevent
import msgspec
import pyarrow.parquet as pq
import pytest

from servebench.core.errors import HarnessError, InputError
from servebench.core.outcomes import Outcome
from servebench.core.units import NS_PER_MS, NS_PER_S
from servebench.inquiry.secrets import Secrets
from servebench.loadgen.hub_ticker import HubTicker
from servebench.loadgen.master.interactive import interactive_workload
from servebench.loadgen.messages import Prepare
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.planned import planned
from servebench.loadgen.spans import Spans
from servebench.loadgen.transport.client import Client
from servebench.loadgen.transport.deadlines import ENDLESS, Patience
from servebench.loadgen.transport.exchange import Exchange
from servebench.loadgen.worker.counting import AnswerCounter
from servebench.loadgen.worker.performers import make_performer
from servebench.loadgen.worker.pipeline import Pipeline, UserCode, user_code
from servebench.loadgen.worker.setup import WorkerSetup
from servebench.shards.parts import PartIdentity
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.codec import encode_workload
from servebench.workload.model import Abandon, Requests, Timeouts

IDENTITY = PartIdentity(run_id="r", worker="w0-00000001", epoch_monotonic_ns=0, epoch_unix_ns=0, boot_id="b")
BODY = b'{"model":"m","messages":[{"role":"system","content":"short"},{"role":"user","content":"Why?"}]}'


LIMIT_S = 30.0


class Base:
    """What of Locust's User a pipeline uses."""

    weight = 1
    host: str | None = None
    tasks: ClassVar[list[Callable[..., object]]] = []

    def __init__(self, environment: object) -> None:
        self.environment = environment
        self.begun = self.ended = 0

    def on_start(self) -> None:
        self.begun += 1

    def on_stop(self) -> None:
        self.ended += 1


def user(*tasks: Callable[..., object], weight: int = 1) -> type[Base]:
    return type("Asker", (Base,), {"tasks": list(tasks), "weight": weight})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "asker.py"
    path.write_text("# tasks\n", encoding="utf-8")
    return path


@pytest.fixture
def make(file: Path, tmp_path: Path) -> Iterator[Callable[..., Pipeline]]:
    made: list[Pipeline] = []

    def build(*users: type[Base], total_ns: int = 30 * NS_PER_S, seed: int = 1) -> Pipeline:
        pipeline = Pipeline(
            user_code(file, object(), list(users)), Timeouts(total_ns=total_ns), seed=seed, url="http://h:1"
        )
        pipeline.record_into(tmp_path / "spans", IDENTITY)
        made.append(pipeline)
        return pipeline

    yield build
    for pipeline in made:
        pipeline.close()


def ask(pipeline: Pipeline, seq: int = 0, patience: Patience = ENDLESS) -> Exchange:
    return pipeline.perform(BODY, f"7c1e-{seq}-0", 5, patience=patience)


def test_a_task_is_an_answer_and_what_it_returns_is_the_text(make: Callable[..., Pipeline]) -> None:
    done = ask(make(user(lambda _user: "because")))
    assert (done.answer.outcome, done.answer.text, done.answer.error_class) == (Outcome.OK, "because", None)
    assert done.stamps.sent_ns is not None
    assert done.stamps.dispatched_ns == 5
    assert done.answer.end_ns >= done.stamps.sent_ns
    assert ask(make(user(lambda _user: 7))).answer.text is None


def test_what_a_task_raises_is_the_class_of_the_row(make: Callable[..., Pipeline]) -> None:
    def raising(error: BaseException) -> Callable[[object], object]:
        def task(_user: object) -> object:
            raise error

        return task

    def outcome(error: BaseException) -> tuple[str, str | None, str | None]:
        answer = ask(make(user(raising(error)))).answer
        return answer.outcome.value, answer.error_class, answer.error_message

    assert outcome(ValueError("the answer is empty")) == ("stream_error", "ValueError", "the answer is empty")
    assert outcome(ConnectionRefusedError("no")) == ("connect_error", "ConnectionRefusedError", "no")
    assert outcome(TimeoutError()) == ("timeout", "TimeoutError", None)
    assert outcome(gevent.Timeout(3))[:2] == ("timeout", "Timeout")


def test_a_task_learns_which_request_it_answers_and_no_other_greenlet_does(make: Callable[..., Pipeline]) -> None:
    seen = []

    def task(_user: object) -> None:
        asked = planned()
        assert asked is not None
        seen.append((asked.request_id, asked.prompt, msgspec.json.decode(asked.body)["model"]))

    ask(make(user(task)), seq=4)
    assert seen == [("7c1e-4-0", "Why?", "m")]
    assert planned() is None


def test_a_body_without_a_prompt_of_text_is_told(make: Callable[..., Pipeline]) -> None:
    def task(_user: object) -> str:
        asked = planned()
        return "" if asked is None else asked.prompt

    pipeline = make(user(task))
    assert pipeline.perform(b'{"prompt":"Why?"}', "7c1e-0-0", None).answer.text == "Why?"
    assert pipeline.perform(b'{"input":["Why?"]}', "7c1e-1-0", None).answer.error_class == "InputError"


def test_users_are_used_again_and_as_many_are_made_as_answers_go_on_side_by_side(
    make: Callable[..., Pipeline],
) -> None:
    seen: set[object] = set()

    def task(asker: Base) -> None:
        seen.add(asker)
        gevent.sleep(0.01)

    pipeline = make(user(task))
    for seq in range(5):
        ask(pipeline, seq)
    assert len(seen) == 1
    gevent.joinall([gevent.spawn(ask, pipeline, seq) for seq in range(3)])
    assert len(seen) == 3
    pipeline.close()
    assert {(one.begun, one.ended, one.host) for one in seen if isinstance(one, Base)} == {(1, 1, "http://h:1")}


def test_the_total_deadline_and_patience_end_a_task(make: Callable[..., Pipeline]) -> None:
    def task(_user: object) -> None:
        gevent.sleep(60)

    late = ask(make(user(task), total_ns=20 * NS_PER_MS)).answer
    assert (late.outcome, late.error_class) == (Outcome.TIMEOUT, "timeout_total")
    left = ask(make(user(task)), patience=Patience(20 * NS_PER_MS, None)).answer
    assert (left.outcome, left.error_class) == (Outcome.CANCELLED, "abandoned")


def test_cancelling_ends_what_goes_on_also_where_the_code_does_not_listen(make: Callable[..., Pipeline]) -> None:
    def deaf(_user: object) -> None:
        for _ in range(3):
            try:
                gevent.sleep(60)
            except gevent.GreenletExit:
                continue

    pipeline = make(user(deaf))
    waiting = [gevent.spawn(ask, pipeline, seq) for seq in range(2)]
    gevent.sleep(0.01)
    assert pipeline.cancel_all() == 2
    with gevent.Timeout(20):
        answers = [one.get().answer for one in waiting]
    assert [(a.outcome, a.error_class) for a in answers] == [(Outcome.CANCELLED, "cancelled")] * 2
    assert pipeline.cancel_all() == 0


def test_tasks_are_chosen_by_weight_and_alike_on_every_worker(make: Callable[..., Pipeline]) -> None:
    def chosen(pipeline: Pipeline) -> list[str | None]:
        return [ask(pipeline, seq).answer.text for seq in range(400)]

    users = (user(lambda _: "a", lambda _: "b", weight=3), user(lambda _: "c"))
    first = chosen(make(*users))
    assert first == chosen(make(*users))
    assert first != chosen(make(*users, seed=2))
    counted = Counter(first)
    for name, expected in (("a", 150), ("b", 150), ("c", 100)):
        assert abs(counted[name] - expected) < 40  # four standard deviations


def test_steps_of_a_planned_request_go_to_the_run_and_name_its_row(
    make: Callable[..., Pipeline], tmp_path: Path
) -> None:
    own = Spans(tmp_path / "own")

    def task(_user: object) -> None:
        with own.answer("question") as answer, answer.span("model"):
            pass

    pipeline = make(user(task))
    recorder = pipeline.record_into(tmp_path / "run-spans", IDENTITY)
    ask(pipeline, 3)
    recorder.close()
    own.close()
    rows = pq.read_table(tmp_path / "run-spans").to_pylist()
    assert [(line["span"], line["request_id"], line["run_id"]) for line in rows] == [
        ("model", "7c1e-3-0", "r"),
        ("question", "7c1e-3-0", "r"),
    ]
    assert not (tmp_path / "own").exists()


def test_steps_after_the_end_of_a_run_are_dropped(make: Callable[..., Pipeline], tmp_path: Path) -> None:
    recorder = make(user(lambda _: None)).record_into(tmp_path / "late", IDENTITY)
    recorder.close()
    recorder.add([])
    assert recorder.parts == ()
    assert recorder.failure is None


def test_a_user_that_does_not_stop_or_raises_as_it_stops_keeps_nobody_waiting(
    make: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servebench.loadgen.worker.pipeline.STOP_LIMIT_S", 0.05)
    stopped: list[str] = []

    class Stuck(Base):
        tasks: ClassVar[list[Callable[..., object]]] = [lambda _user: None]

        def on_stop(self) -> None:
            stopped.append("begun")
            gevent.sleep(LIMIT_S)

    class Late(Base):
        tasks: ClassVar[list[Callable[..., object]]] = [lambda _user: None]

        def on_stop(self) -> None:
            stopped.append("begun")
            raise gevent.Timeout

    pipeline = make(Stuck, Late)
    for seq in range(20):
        ask(pipeline, seq)
    with gevent.Timeout(LIMIT_S):
        pipeline.close()
    assert stopped == ["begun", "begun"]


def test_a_file_without_tasks_or_with_task_sets_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no user class with a task"):
        user_code(file, object(), [])
    with pytest.raises(InputError, match="task set Tour"):
        user_code(file, object(), [user(type("Tour", (), {}))])
    with pytest.raises(InputError, match="No such file"):
        user_code(tmp_path / "gone.py", object(), [user(lambda _: None)])


def order_and_setup(tmp_path: Path, wanted: str | None, code: UserCode | None) -> tuple[Prepare, WorkerSetup]:
    workload = encode_workload(interactive_workload()).decode()
    order = Prepare(
        run_id="r",
        engine="tokens",
        workload=workload,
        url="http://127.0.0.1:9",
        model=None,
        master_boot_id="b",
        locustfile=wanted,
    )
    setup = WorkerSetup(
        worker_id="id-0",
        worker="w0-00000001",
        boot_id="b",
        offset_ns=0,
        sync=None,
        out=tmp_path,
        url=order.url,
        secrets=Secrets(),
        send=lambda _message: None,
        tell_locust=lambda _record, _epoch: None,
        token_rate_per_s=lambda: 0.0,
        counter=AnswerCounter(None),
        code=code,
        ticker=HubTicker(),
    )
    return order, setup


def test_a_worker_takes_part_with_the_masters_file_only(file: Path, tmp_path: Path) -> None:
    code = user_code(file, object(), [user(lambda _: None)])
    workload, endpoint = interactive_workload(), ENDPOINTS["openai-chat"].at("m", stream=True)
    leaving = msgspec.structs.replace(workload, requests=Requests(abandon=Abandon(token_events=5)))
    made = make_performer(*order_and_setup(tmp_path, code.sha256, code), workload, endpoint, NextDue())
    assert isinstance(made, Pipeline)
    for wanted, here, asked, words in (
        (code.sha256, None, workload, "which this worker lacks"),
        ("f" * 64, code, workload, "not the file that the master has"),
        (code.sha256, code, leaving, "abandon.tokens"),
    ):
        with pytest.raises(InputError, match=words):
            make_performer(*order_and_setup(tmp_path, wanted, here), asked, endpoint, NextDue())
    client = make_performer(*order_and_setup(tmp_path, None, code), workload, endpoint, NextDue())
    assert isinstance(client, Client)
    client.close()


def test_a_pipeline_without_a_folder_does_not_begin(file: Path) -> None:
    code: UserCode = user_code(file, object(), [user(lambda _: None)])
    pipeline = Pipeline(code, Timeouts(), seed=0, url="http://h:1")
    with pytest.raises(HarnessError, match="before it had a folder"):
        ask(pipeline)
