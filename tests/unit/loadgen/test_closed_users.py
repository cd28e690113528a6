"""Closed users send each seq once, also when there are more workers than users, and end when they should."""

import random
import time
from collections.abc import Callable
from functools import partial

import gevent
import msgspec
import numpy as np
import pytest

from servebench.core.outcomes import Outcome
from servebench.core.records import Answer, Ask
from servebench.loadgen.master.interactive import interactive_workload
from servebench.loadgen.membership import RUN_START, Change
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.closed_users import ClosedUsers
from servebench.loadgen.worker.permit import NEVER_NS, Permit, SeqPool
from servebench.workload.draw import Drawer
from servebench.workload.model import Closed, Conversation, Turns
from servebench.workload.prompts import load_prompts

LIMIT_S = 30
EPOCH_NS = time.monotonic_ns()


class Worker:
    """Closed users of one worker, and what they did."""

    def __init__(
        self,
        closed: Closed,
        perform: Callable[[Ask], Answer] | None = None,
        talk: Conversation | None = None,
        *,
        me: str = "me",
        epoch_ns: int | None = None,
    ) -> None:
        workload = interactive_workload()
        workload = msgspec.structs.replace(
            workload, prompts=msgspec.structs.replace(workload.prompts, conversation=talk)
        )
        permit = self.permit = Permit(valid_until_ns=NEVER_NS)
        self.epoch_ns = time.monotonic_ns() if epoch_ns is None else epoch_ns
        self.on_need: Callable[[int], None] | None = None
        self.asked_for, self.sent, self.asks = 0, list[int](), list[Ask]()
        self.failures: list[BaseException] = []
        self.seqs = SeqPool(permit, self._ask_for)
        self.users = ClosedUsers(
            me=me,
            closed=closed,
            drawer=Drawer(workload, load_prompts(workload, "r")),
            rng=np.random.default_rng(1),
            seqs=self.seqs,
            clock=RunClock(self.epoch_ns),
            permit=permit,
            talk=talk,
            converse=lambda: perform or self._perform,
            on_failure=self.failures.append,
        )

    def share_with(self, *members: str) -> None:
        """Have the users shared by these workers from now on, as the latest entry of the membership table."""
        self.permit.changes = (*self.permit.changes, Change(self.now_ns(), tuple(sorted(members))))
        self.permit.signal()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.epoch_ns

    def run(self) -> None:
        with gevent.Timeout(LIMIT_S):
            self.users.run()

    def _ask_for(self, blocks: int) -> None:
        self.asked_for += blocks
        if self.on_need is not None:
            self.on_need(blocks)

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
    worker.share_with("me")
    gevent.spawn_later(0, worker.share_with, "other")
    worker.run()
    assert sorted(worker.sent) == list(range(20))


def test_a_client_that_fails_is_told_of_once_per_user_and_ends_the_load() -> None:
    def fail(_: Ask) -> Answer:
        msg = "no sockets"
        raise OSError(msg)

    worker = Worker(Closed(users=2, requests=40), fail)
    worker.seqs.add(0, 40)
    worker.share_with("me")
    worker.run()
    assert 1 <= len(worker.failures) <= 2
    assert {str(failure) for failure in worker.failures} == {"no sockets"}


def test_a_user_that_is_one_too_many_leaves_between_turns_and_the_others_go_on() -> None:
    talk = Conversation(turns=Turns(law="fixed", low=5))
    worker = Worker(Closed(users=2, requests=40), talk=talk)
    worker.seqs.add(0, 40)
    worker.seqs.add(40, 0)
    worker.share_with("me")
    gevent.spawn_later(0, worker.share_with, "me", "other")
    worker.run()
    assert sorted(worker.sent) == list(range(40))
    by_session: dict[int, list[int]] = {}
    for ask in worker.asks:
        by_session.setdefault(ask.session, []).append(ask.turn)
    assert all(turns == list(range(len(turns))) for turns in by_session.values())
    assert sorted({len(turns) for turns in by_session.values()})[-1] == 5


def test_without_a_lease_no_request_begins_and_with_the_next_one_the_users_go_on() -> None:
    worker = Worker(Closed(users=3, requests=60))
    worker.seqs.add(0, 60)
    worker.seqs.add(60, 0)
    worker.share_with("me")
    running = gevent.spawn(worker.run)
    with gevent.Timeout(LIMIT_S):
        while len(worker.sent) < 10:
            gevent.sleep(0)
    worker.permit.valid_until_ns = -1  # the master is not heard any more
    gevent.sleep(0.05)
    before = list(worker.sent)
    gevent.sleep(0.3)
    assert worker.sent == before
    assert len(before) < 60
    worker.permit.valid_until_ns = NEVER_NS
    running.get(timeout=LIMIT_S)
    assert sorted(worker.sent) == list(range(60))


def test_a_user_that_waited_for_a_seq_while_its_worker_lost_its_share_gives_it_back() -> None:
    worker = Worker(Closed(users=1, duration_ns=10**9))
    worker.share_with("me")
    running = gevent.spawn(worker.run)
    with gevent.Timeout(LIMIT_S):
        while not worker.asked_for:
            gevent.sleep(0)
    worker.share_with("other")
    worker.seqs.add(0, 5)
    gevent.sleep(0.05)
    assert worker.sent == []
    worker.permit.stop_at(0)
    running.get(timeout=LIMIT_S)
    assert len(worker.seqs) == 5


def test_a_user_that_gets_the_last_seq_sends_it_also_where_another_hears_first_that_there_are_no_more() -> None:
    worker = Worker(Closed(users=2, requests=1))
    worker.share_with("me")
    running = gevent.spawn(worker.run)
    with gevent.Timeout(LIMIT_S):
        while not worker.asked_for:
            gevent.sleep(0)
    worker.permit.valid_until_ns = 0  # the lease lapses while both users wait for a seq
    worker.seqs.add(0, 1)
    worker.seqs.add(1, 0)
    gevent.sleep(0.05)
    assert worker.sent == []
    worker.permit.valid_until_ns = NEVER_NS
    worker.permit.signal()
    running.get(timeout=LIMIT_S)
    assert worker.sent == [0]


@pytest.mark.parametrize("seed", range(10))
def test_workers_that_come_go_and_fall_silent_never_have_more_conversations_than_users_and_send_each_seq_once(
    seed: int,
) -> None:
    """Three workers and a master's part played here; a change of members is an instant that all know.

    A conversation is open from its first request until its last answer; whose user became one too many, it ends
    with the answer that was awaited, so those count that began a request under the table of the moment.
    """
    draw, total, users = random.Random(seed), 300, 4
    closed = Closed(users=users, requests=total)
    names = ("a", "b", "c")
    log: dict[int, set[int]] = {}
    open_now: set[int] = set()
    table = [Change(RUN_START, names)]
    taken = 0

    def perform(ask: Ask) -> Answer:
        open_now.add(ask.session)
        assert len(open_now) <= users
        log.setdefault(ask.session, set()).add(ask.turn)
        gevent.sleep(draw.uniform(0, 0.004))
        if ask.turn == 3:
            open_now.discard(ask.session)
        return Answer(outcome=Outcome.OK, end_ns=time.monotonic_ns())

    talk = Conversation(turns=Turns(law="fixed", low=4))
    workers = {name: Worker(closed, perform, talk, me=name, epoch_ns=EPOCH_NS) for name in names}

    def lease_seqs(name: str, blocks: int) -> None:
        nonlocal taken
        for _ in range(blocks):
            count = min(7, total - taken)
            workers[name].seqs.add(taken, count)
            taken += count

    def tell(members: tuple[str, ...]) -> None:
        """Let members share the users from now on; who is none has no lease."""
        table.append(Change(time.monotonic_ns() - EPOCH_NS, members))
        open_now.clear()
        for name, worker in workers.items():
            worker.permit.valid_until_ns = NEVER_NS if name in members else -NEVER_NS
            if name in members:
                worker.permit.changes = tuple(table)
            worker.permit.signal()

    for name, worker in workers.items():
        worker.on_need = partial(lease_seqs, name)
    tell(names)
    running = [gevent.spawn(worker.run) for worker in workers.values()]
    for _ in range(6):
        gevent.sleep(draw.uniform(0.002, 0.02))
        tell(tuple(sorted(draw.sample(names, draw.randint(1, 3)))))
    tell(names)
    gevent.joinall(running, timeout=LIMIT_S, raise_error=True)
    assert all(greenlet.ready() for greenlet in running)
    assert [worker.failures for worker in workers.values()] == [[], [], []]
    assert sum(len(turns) for turns in log.values()) == total
    assert all(turns == set(range(len(turns))) for turns in log.values())


def test_each_user_is_in_one_conversation_at_a_time() -> None:
    worker = Worker(Closed(users=3, requests=60), talk=Conversation(turns=Turns(law="fixed", low=4)))
    worker.seqs.add(0, 60)
    worker.seqs.add(60, 0)
    worker.share_with("me")
    worker.run()
    under_way: set[int] = set()
    for ask in worker.asks:
        under_way.add(ask.session)
        assert len(under_way) <= 3
        if ask.turn == 3:
            under_way.remove(ask.session)
    assert sorted(worker.sent) == list(range(60))
