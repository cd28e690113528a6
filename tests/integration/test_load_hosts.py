"""Master, workers and server on addresses of their own: a partition that heals, a far worker on a bad line.

Needs root, for network namespaces; skipped with the reason elsewhere. The server's log is the truth.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.networks import MASTER, SERVER, Network, network
from tests.nodes import Nodes, await_epoch, lost_of, manifest_of, nodes_in, rows_of, seq_of
from tests.servers.simulator import StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

RATE = 20
CUT_S, HEALED_S, END_S = 2, 12, 22


@pytest.fixture
def hosts() -> Iterator[Network]:
    with network() as made:
        yield made


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


def start_worker(nodes: Nodes, hosts: Network, host: str) -> None:
    """Start a worker on a host, with a disk of its own."""
    nodes.worker(out=nodes.folder / host, host=MASTER, prefix=hosts.enter(host))


def sleep_until(epoch_ns: int, t_s: float) -> None:
    time.sleep(max(0.0, t_s - (time.monotonic_ns() - epoch_ns) / 1e9))


@pytest.mark.parametrize("cut", [("w2",), ("w1", "w2")], ids=["one-worker", "all-workers"])
def test_workers_cut_off_from_their_master_for_10_s_send_nothing_twice_and_take_part_again(
    tmp_path: Path, hosts: Network, start_sim: StartSim, cut: tuple[str, ...]
) -> None:
    hosts.add("w1", 11, "control", "service")
    hosts.add("w2", 12, "control", "service")
    sim = start_sim(host=SERVER, prefix=hosts.enter("server"))
    with nodes_in(tmp_path, f"http://{SERVER}:{sim.port}") as nodes:
        workload = nodes.workload(rate=RATE, duration=f"{END_S}s")
        master = nodes.master(workload, 2, "--show-invalid", bind=MASTER, prefix=hosts.enter("master"))
        start_worker(nodes, hosts, "w1")
        start_worker(nodes, hosts, "w2")
        epoch_ns = await_epoch(nodes)
        sleep_until(epoch_ns, CUT_S)
        for host in cut:
            hosts.cut(host)
        sleep_until(epoch_ns, HEALED_S)
        for host in cut:
            hosts.heal(host)
        assert master.wait(120) in {0, 3}, nodes.logs()
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        kept = list(tmp_path.glob("w*/2*/requests/part-*.parquet"))
        seen = Counter(seq_of(record.request_id) for record in sim.stop())

    assert kept == [], "every part reached the master"
    assert manifest["stop_cause"] == "finished"
    assert [worker["state"] for worker in manifest["workers"]] == ["closed", "closed"], nodes.logs()
    assert max(seen.values()) == 1, "no request was sent by both sides of the partition"
    assert sorted(row["seq"] for row in rows) == sorted(seen), "what the server saw has a row, once"
    assert lost_of(manifest) == set(range(manifest["planned"])) - set(seen)
    assert {item["cause"] for item in manifest["lost_detail"]} <= {"undispatched"}
    check_absence(rows, manifest, len(cut))


def check_absence(rows: list[dict[str, Any]], manifest: dict[str, Any], cut: int) -> None:
    """Check that the workers that were cut off were silent meanwhile, came back, and say what they sent too late."""
    members = [len(change["workers"]) for change in manifest["members"]]
    assert (members[0], min(members), members[-1]) == (2, 2 - cut, 2)
    sent = {name: [row for row in rows if row["worker"] == name] for name in {row["worker"] for row in rows}}
    silent = [name for name, mine in sent.items() if not sent_within(mine, CUT_S + 2, HEALED_S)]
    assert len(silent) == cut, "who had no lease sent nothing"
    back = manifest["members"][-1]["from_ns"]
    for name in silent:
        again = [row for row in sent[name] if row["intended_ns"] >= back]
        assert len(again) > 0.2 * RATE * (END_S - back / 1e9), "and took its share again when it was back"
        overdue = [row for row in sent_within(sent[name], HEALED_S, END_S) if row["intended_ns"] < HEALED_S * 10**9]
        assert all(row["late"] for row in overdue), "what came due before its lease ended was sent late, and says so"
    if cut == 1:
        meanwhile = [row for row in rows if CUT_S + 3 < row["intended_ns"] / 1e9 < HEALED_S]
        assert len(meanwhile) > 0.7 * RATE * (HEALED_S - CUT_S - 3), "the other one took the share over"


def sent_within(rows: list[dict[str, Any]], start_s: float, end_s: float) -> list[dict[str, Any]]:
    """Return the rows of requests that were sent within a time of the run."""
    return [row for row in rows if start_s < row["sent_ns"] / 1e9 < end_s]


def test_a_far_worker_on_a_lossy_line_delivers_everything_on_the_masters_time_axis(
    tmp_path: Path, hosts: Network, start_sim: StartSim
) -> None:
    hosts.add("w1", 11, "control", "service")
    hosts.add_far("w2", 12, delay_ms=25, jitter_ms=5, loss_percent=1)
    sim = start_sim(host=SERVER, prefix=hosts.enter("server"))
    with nodes_in(tmp_path, f"http://{SERVER}:{sim.port}") as nodes:
        workload = nodes.workload(rate=RATE, duration="8s", tokens=40)
        master = nodes.master(workload, 2, "--show-invalid", bind=MASTER, prefix=hosts.enter("master"))
        start_worker(nodes, hosts, "w1")
        start_worker(nodes, hosts, "w2")
        assert master.wait(120) in {0, 3}, nodes.logs()
        manifest, rows = manifest_of(nodes.run), rows_of(nodes.run)
        kept = list(tmp_path.glob("w*/2*/requests/part-*.parquet"))
        truth = {record.request_id: record.t_received_ns for record in sim.stop()}

    assert kept == []
    assert [worker["state"] for worker in manifest["workers"]] == ["closed", "closed"], nodes.logs()
    assert sorted(row["seq"] for row in rows) == list(range(manifest["planned"]))
    assert {row["outcome"] for row in rows} == {"ok"}
    assert len({row["worker"] for row in rows}) == 2
    late_ns = [truth[row["request_id"]] - manifest["epoch_monotonic_ns"] - row["intended_ns"] for row in rows]
    assert min(late_ns) >= 0, "nothing is sent before its time"
    assert sorted(late_ns)[len(late_ns) // 2] < 50_000_000, "the line between master and worker delays no request"
