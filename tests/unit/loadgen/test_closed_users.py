"""Closed users send each seq once, also when there are more workers than users, and end when they should."""

import time
from collections.abc import Callable

import gevent
import msgspec
import numpy as np

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Ask
from servebench.loadgen.master.interactive import interactive_workload
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.closed_users import ClosedUsers
from servebench.loadgen.worker.permit import Permit, SeqPool
from servebench.workload.draw import Drawer
from servebench.workload.model import Closed, Conversation, Turns
from servebench.workload.prompts import load_prompts

LIMIT_S = 30


class Worker:
    """Closed users of one worker, and what they did."""

    def __init__(
        self, closed: Closed, perform: Callable[[Ask], Answer] | None = None, talk: Conversation | None = None
    ) -> None:
        workload = interactive_workload()
        workload = msgspec.structs.replace(
            workload, prompts=msgspec.structs.replace(workload.prompts, conversation=talk)
        )
        permit = Permit()
        self.asked_for, self.sent, self.asks = 0, list[int](), list[Ask]()
        self.failures: list[BaseException] = []
        self.seqs = SeqPool(permit, self._ask_for)
        self.users = ClosedUsers(
            closed=closed,
            drawer=Drawer(workload, load_prompts(workload, "r")),
            rng=np.random.default_rng(1),
            seqs=self.seqs,
            clock=RunClock(time.monotonic_ns()),
            permit=permit,
            talk=talk,
            converse=lambda: perform or self._perform,
            on_failure=self.failures.append,
        )

    def run(self) -> None:
        with gevent.Timeout(LIMIT_S):
            self.users.run()

    def _ask_for(self, blocks: int) -> None:
        self.asked_for += blocks

    def _perform(self, ask: Ask) -> Answer:
        self.sent.append(ask.seq)
        self.asks.append(ask)
        gevent.sleep(0)
        return Answer(outcome=Outcome.OK, end_ns=time.monotonic_ns())


def test_a_worker_without_users_ends_when_it_hears_that_the_seqs_are_used_up() -> None:
    worker = Worker(Closed(users=1, requests=5))
    worker.seqs.add(5, 0)
    worker.run()
    assert (worker.sent, worker.asked_for) == ([], 0)


def test_a_worker_that_loses_its_users_still_sends_the_seqs_that_only_it_has() -> None:
    worker = Worker(Closed(users=2, requests=40))
    worker.seqs.add(0, 20)
    worker.seqs.add(40, 0)
    worker.users.set_users(2)
    gevent.spawn_later(0, worker.users.set_users, 0)
    worker.run()
    assert sorted(worker.sent) == list(range(20))


def test_a_client_that_fails_is_told_of_once_per_user_and_ends_the_load() -> None:
    def fail(_: Ask) -> Answer:
        msg = "no sockets"
        raise OSError(msg)

    worker = Worker(Closed(users=2, requests=40), fail)
    worker.seqs.add(0, 40)
    worker.users.set_users(2)
    worker.run()
    assert 1 <= len(worker.failures) <= 2
    assert {str(failure) for failure in worker.failures} == {"no sockets"}


def test_a_user_that_is_one_too_many_leaves_between_turns_and_the_others_go_on() -> None:
    talk = Conversation(turns=Turns(law="fixed", low=5))
    worker = Worker(Closed(users=2, requests=40), talk=talk)
    worker.seqs.add(0, 40)
    worker.seqs.add(40, 0)
    worker.users.set_users(2)
    gevent.spawn_later(0, worker.users.set_users, 1)
    worker.run()
    assert sorted(worker.sent) == list(range(40))
    by_session: dict[int, list[int]] = {}
    for ask in worker.asks:
        by_session.setdefault(ask.session, []).append(ask.turn)
    assert all(turns == list(range(len(turns))) for turns in by_session.values())
    assert sorted({len(turns) for turns in by_session.values()})[-1] == 5


def test_each_user_is_in_one_conversation_at_a_time() -> None:
    worker = Worker(Closed(users=3, requests=60), talk=Conversation(turns=Turns(law="fixed", low=4)))
    worker.seqs.add(0, 60)
    worker.seqs.add(60, 0)
    worker.users.set_users(3)
    worker.run()
    under_way: set[int] = set()
    for ask in worker.asks:
        under_way.add(ask.session)
        assert len(under_way) <= 3
        if ask.turn == 3:
            under_way.remove(ask.session)
    assert sorted(worker.sent) == list(range(60))
