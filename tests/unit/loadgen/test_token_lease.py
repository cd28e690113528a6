"""Load by hand keeps to the lease: a master that is not heard stops it, and nothing is made up for afterwards."""

import time
from itertools import repeat

import gevent

from servebench.core.records import Ask
from servebench.core.units import NS_PER_S
from servebench.loadgen.master.interactive import interactive_workload
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.permit import NEVER_NS, Permit, SeqPool
from servebench.loadgen.worker.token_dispatch import TokenDispatcher
from servebench.workload.draw import Drawer
from servebench.workload.prompts import load_prompts

LIMIT_S = 30
RATE_PER_S = 100.0


def test_without_a_lease_nothing_is_offered_and_with_the_next_one_only_what_comes_due_from_then_on() -> None:
    sent: list[Ask] = []
    workload, permit = interactive_workload(), Permit(valid_until_ns=NEVER_NS)
    clock = RunClock(time.monotonic_ns())
    seqs = SeqPool(permit, lambda _: None)
    seqs.add(0, 10_000)
    dispatcher = TokenDispatcher(
        drawer=Drawer(workload, load_prompts(workload, "r")),
        unit_gaps=repeat(1.0),
        seqs=seqs,
        clock=clock,
        permit=permit,
        rate_per_s=lambda: RATE_PER_S,
        render=lambda _: b"",
        launch=lambda ask, _: sent.append(ask),
        next_due=NextDue(),
    )
    running = gevent.spawn(dispatcher.run)
    with gevent.Timeout(LIMIT_S):
        while len(sent) < 10:
            gevent.sleep(0.01)
        permit.valid_until_ns = ended_ns = clock.now_ns()
        gevent.sleep(0.05)
        before = len(sent)
        gevent.sleep(0.5)
        assert len(sent) == before, "sent without a lease"
        again_ns = clock.now_ns()
        permit.valid_until_ns = NEVER_NS
        permit.signal()
        while len(sent) < before + 10:
            gevent.sleep(0.01)
        permit.stop_at(clock.now_ns())
        dispatcher.wake()
        running.get()
    due = [ask.intended_ns for ask in sent if ask.intended_ns is not None]
    assert len(due) == len(sent)
    assert not [at_ns for at_ns in due if ended_ns < at_ns < again_ns]
    after = [at_ns for at_ns in due if at_ns >= again_ns]
    assert len(after) <= RATE_PER_S * (after[-1] - again_ns) / NS_PER_S + 1, "what was due meanwhile came in a volley"
