"""Know how leases go out to many workers without an answer of all of them at once."""

import gevent

from servebench.loadgen.master.roster import Roster
from servebench.loadgen.membership import Membership
from servebench.loadgen.messages import Lease, MembersFrom
from servebench.loadgen.runclock import RunClock

LEASE_EVERY_S = 0.2
LEASE_BATCH = 16
SPREAD = 0.75
"""Share of the time between two leases over which those of many workers are spread."""


def send_leases(run_id: str, roster: Roster, table: Membership, clock: RunClock, *, spread: bool) -> None:
    """Send every reachable worker its lease, the lost too: so they come back.

    Each is answered at once. With `spread` they go out in batches over most of the time until the next ones are due:
    the answers of hundreds of workers in one burst keep the hub, and whatever else is said, waiting for 40 ms. Blocks
    the calling greenlet meanwhile; up to a batch of workers get theirs in one go.
    """
    members = tuple(MembersFrom(from_ns=c.from_ns, worker_ids=c.members) for c in table.changes)
    reachable = roster.reachable()
    batches = [reachable[place : place + LEASE_BATCH] for place in range(0, len(reachable), LEASE_BATCH)]
    pause_s = SPREAD * LEASE_EVERY_S / len(batches) if spread and batches else 0.0
    for place, batch in enumerate(batches):
        if place:
            gevent.sleep(pause_s)  # 0 still lets others go first
        now_ns = clock.now_ns()
        for worker_id in batch:
            has_it = roster.workers[worker_id].changes == len(members)
            until_ns = table.lease_until(worker_id, now_ns)
            lease = Lease(run_id=run_id, valid_until_ns=until_ns, members=None if has_it else members)
            roster.send(lease, [worker_id])
