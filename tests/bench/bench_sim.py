"""What a token costs the simulator: server CPU per token beside the least work a client can do in C.

Run: `pytest tests/bench/bench_sim.py -s`. Needs a C compiler. The client is tests/bench/floor/floor.c.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.servers.simulator import Sim, StartSim, sim_starter

pytestmark = [pytest.mark.integration, pytest.mark.bench]

FLOOR = Path(__file__).parent / "floor" / "floor.c"
STREAMS = 256
TOKENS = 256


@pytest.fixture
def start_sim(tmp_path: Path) -> Iterator[StartSim]:
    with sim_starter(tmp_path) as start:
        yield start


@pytest.fixture
def floor(tmp_path: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-O2", "-o", str(tmp_path / "floor"), str(FLOOR)], check=True)
    return tmp_path / "floor"


def cpu_s(sim: Sim) -> float:
    times = psutil.Process(sim.process.pid).cpu_times()
    return float(times.user + times.system)


def measure(sim: Sim, floor: Path, requests: int) -> tuple[float, str]:
    """Return the server's CPU us per token and the client's own line of figures."""
    before = cpu_s(sim)
    command = [str(floor), str(sim.port), str(STREAMS), str(requests), str(TOKENS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return (cpu_s(sim) - before) * 1e6 / (requests * TOKENS), done.stdout.strip()


@pytest.mark.parametrize(
    ("name", "options", "requests"),
    [("unpaced", (), 1_024), ("20 ms per step", ("--set", "step_base_ns=20_000_000"), 512)],
    ids=["unpaced", "paced"],
)
def test_a_token_costs_the_server_little_more_than_its_send(
    start_sim: StartSim, floor: Path, name: str, options: tuple[str, ...], requests: int
) -> None:
    sim = start_sim("--model", "mock", *options)
    measure(sim, floor, STREAMS)
    server_us, client = measure(sim, floor, requests)
    client_us = float(client.rpartition("= ")[2].split()[0])
    print(f"\n{name}: server {server_us:.1f} us/token, {server_us / client_us:.1f}x the C client; {client}")
    assert sum(record.completion_tokens for record in sim.stop()) == (STREAMS + requests) * TOKENS
    # 2x when measured. Five times the cost of a C client that only reads would mean work per token that is not needed.
    assert server_us < 5 * client_us
