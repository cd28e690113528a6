"""Leases reach every worker once, a batch at a time, with room for others in between."""

from collections import Counter
from typing import Any

import gevent
import pytest

from servebench.loadgen.channel import Channel, wire_name
from servebench.loadgen.master.leases import LEASE_BATCH, send_leases
from servebench.loadgen.master.roster import Roster
from servebench.loadgen.membership import Membership
from servebench.loadgen.messages import Hello, Lease, Ready
from servebench.loadgen.runclock import RunClock


class Wire:
    """A runner that keeps what is sent, and how often others had their turn before."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, dict[str, Any]]] = []
        self.turns: list[int] = []
        self.turn = 0

    def send_message(self, msg_type: str, data: dict[str, Any], client_id: str) -> None:
        self.sent.append((client_id, msg_type, data))
        self.turns.append(self.turn)

    def others(self) -> None:
        while True:
            self.turn += 1
            gevent.sleep(0)


def roster_of(wire: Wire, count: int) -> Roster:
    roster = Roster(Channel(wire, lambda _: None))
    for number in range(count):
        name = f"worker-{number}"
        hello = Hello(worker_id=name, worker=f"w{number}-00000000", host="h", pid=1, boot_id="b")
        roster.add(hello)
        roster.workers[name].ready = Ready(
            run_id="r", worker_id=name, schedule_hash=None, offset_ns=0, clock_bound_ns=0
        )
    return roster


@pytest.mark.parametrize("spread", [False, True])
def test_every_worker_gets_one_lease_and_others_have_their_turn_after_each_batch(spread: bool) -> None:
    wire, count = Wire(), 3 * LEASE_BATCH + 5
    roster, clock = roster_of(wire, count), RunClock(0)
    table = Membership.begin(list(roster.workers), clock.now_ns())
    others = gevent.spawn(wire.others)
    send_leases("r", roster, table, clock, spread=spread)
    others.kill()
    assert [(to, kind) for to, kind, _ in wire.sent] == [(name, wire_name(Lease)) for name in roster.workers]
    assert sorted(Counter(wire.turns).values()) == [5, *[LEASE_BATCH] * 3]
    assert all(data["valid_until_ns"] > clock.now_ns() for _, _, data in wire.sent)


def test_the_table_goes_only_to_those_that_lack_it() -> None:
    wire = Wire()
    roster, clock = roster_of(wire, 3), RunClock(0)
    table = Membership.begin(list(roster.workers), clock.now_ns())
    roster.workers["worker-1"].changes = 1
    send_leases("r", roster, table, clock, spread=True)
    assert [data["members"] is None for _, _, data in wire.sent] == [False, True, False]


def test_without_workers_nothing_is_sent() -> None:
    wire = Wire()
    send_leases("r", roster_of(wire, 0), Membership.begin([], 0), RunClock(0), spread=True)
    assert wire.sent == []
