"""A worker knows how far it has come with the plan, also where it is late: what it says of itself names its losses."""

import time
from collections.abc import Sequence

import gevent
import pytest

from servebench.core.records import Ask
from servebench.core.units import NS_PER_S
from servebench.loadgen.membership import RUN_START, Change
from servebench.loadgen.next_due import NextDue
from servebench.loadgen.runclock import RunClock
from servebench.loadgen.worker.dispatch import PlanDispatcher
from servebench.loadgen.worker.permit import NEVER_NS, Permit
from servebench.workload.load import parse_workload
from servebench.workload.schedule import plan

WORKLOAD = """
name: reached
seed: 5
prompts: {source: {kind: mt-bench}}
load: {kind: open, phases: [{name: main, shape: steady, rate_per_s: 100, duration: 1s}]}
"""
LIMIT_S = 30


@pytest.mark.parametrize("late_s", [0, 60], ids=["punctual", "a minute late"])
def test_a_workers_seqs_before_the_one_it_has_reached_are_handed_over_and_none_after_it(late_s: int) -> None:
    schedule = plan(parse_workload(WORKLOAD, "w.yaml"))
    mine = [seq for seq in range(len(schedule)) if seq % 2 == 0]
    sent: list[int] = []
    looked: list[bool] = []

    def look() -> None:
        looked.append([seq for seq in mine if seq < dispatcher.reached] == sent)

    def render(_: Ask) -> bytes:
        look()
        return b""

    def launch(asks: Sequence[Ask], _: bytes) -> None:
        sent.append(asks[0].seq)

    changes = (Change(RUN_START, ("a", "b")),)
    dispatcher = PlanDispatcher(
        schedule=schedule,
        me="a",
        clock=RunClock(time.monotonic_ns() - late_s * NS_PER_S),
        permit=Permit(changes=changes, valid_until_ns=NEVER_NS),
        render=render,
        launch=launch,
        next_due=NextDue(),
    )
    assert dispatcher.reached == 0
    running = gevent.spawn(dispatcher.run)
    with gevent.Timeout(LIMIT_S):
        while not running.ready():
            look()
            gevent.sleep(0.01)
    running.get()
    look()
    assert sent == mine
    assert dispatcher.reached == len(schedule)
    assert len(looked) > len(mine)
    assert all(looked)
