"""The compose file as people use it: master, three workers, one of them killed in mid-run, results on the host.

Needs a container engine with compose and the base image that engine.sh makes; `make test-compose` sees to both.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nodes import lost_of, manifest_of, rows_of

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
FILES = ("-f", str(ROOT / "docker" / "compose.yaml"), "-f", str(Path(__file__).with_name("internal.yaml")))
USER = 12345
WORKLOAD = """
name: compose
seed: 5
target: {endpoint: openai-chat, model: sim-1}
prompts:
  source: {kind: mt-bench}
  output_tokens: {from: fixed, tokens: 20}
load:
  kind: open
  arrivals: {process: poisson}
  phases:
    - {name: steady, shape: steady, rate_per_s: 10, duration: 20s}
"""


class Stack:
    """One compose project of this test."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.runs.mkdir()
        os.chown(self.runs, USER, USER)
        (self.runs / "compose.yaml").write_text(WORKLOAD, encoding="utf-8")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SERVEBENCH_")},
            "PYTHON_IMAGE": os.environ.get("PYTHON_IMAGE", "servebench-base:local"),
            "SERVEBENCH_IMAGE": "servebench:test",
            "SERVEBENCH_RUNS": str(self.runs),
            "SERVEBENCH_UID": str(USER),
            "SERVEBENCH_GID": str(USER),
            "SERVEBENCH_SIM_PRESET": "fast",
        }

    def compose(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a compose command to its end."""
        done = subprocess.run(
            self._command(arguments), env=self._environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a compose command."""
        return subprocess.Popen(
            self._command(arguments), env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def pids(self, service: str) -> list[int]:
        """Return the host's pids of a service's containers."""
        names = self.compose("ps", "-q", service).stdout.split()
        return [int(inspect(name, "{{.State.Pid}}")) for name in names]

    def await_parts(self, count: int) -> Path:
        """Return the run folder once it holds that many parts."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if len(list(self.runs.glob("2*/requests/part-*.parquet"))) >= count:
                (folder,) = self.runs.glob("2*")
                return folder
            time.sleep(0.1)
        pytest.fail(f"no parts\n{self.compose('logs', '--tail', '40').stdout}")

    @staticmethod
    def _command(arguments: tuple[str, ...]) -> list[str]:
        return ["docker", "compose", "-p", "servebench-test", *FILES, *arguments]


def inspect(name: str, form: str) -> str:
    done = subprocess.run(["docker", "inspect", "-f", form, name], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    look = ["docker", "image", "inspect", os.environ.get("PYTHON_IMAGE", "servebench-base:local")]
    if shutil.which("docker") is None or subprocess.run(look, check=False, capture_output=True).returncode:
        pytest.skip("no container engine with the base image here; `make test-compose` makes both")
    made = Stack(tmp_path_factory.mktemp("compose"))
    made.compose("build", "sim")
    yield made
    made.compose("down", "--volumes", "--timeout", "2", check=False)


def test_a_headless_run_survives_a_killed_container_and_ends_with_its_verdicts_exit_code(stack: Stack) -> None:
    stack.compose("up", "-d", "--no-build", "--scale", "worker=3", "sim", "worker")
    run = stack.start(
        *("run", "--rm", "-T", "--use-aliases", "headless"),
        *("/runs/compose.yaml", "--expect-workers", "3", "--show-invalid"),
    )
    folder = stack.await_parts(3)
    os.kill(stack.pids("worker")[0], signal.SIGKILL)  # the engine starts it again: it joins the run as a new worker
    output, _ = run.communicate(timeout=300)
    manifest, rows = manifest_of(folder), rows_of(folder)

    # A share of a dead worker is more than 1 % of so short a run: INVALID, and said so by the exit code.
    expected = {"valid": 0, "invalid": 3}[manifest["verdict"]["status"]]
    assert run.returncode == expected, output
    assert manifest["state"] == "merged"
    seqs, lost = [row["seq"] for row in rows], lost_of(manifest)
    assert len(seqs) == len(set(seqs))
    assert set(seqs) | lost == set(range(manifest["planned"]))
    assert not set(seqs) & lost
    assert sorted(worker["state"] for worker in manifest["workers"])[-1] == "lost"
    assert {row["outcome"] for row in rows} == {"ok"}


def test_results_belong_to_the_given_user_and_are_readable(stack: Stack) -> None:
    (folder,) = stack.runs.glob("2*")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.stat().st_uid for path in files} == {USER}
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in files)


def test_containers_run_without_root_and_cannot_write_their_image(stack: Stack) -> None:
    (name,) = stack.compose("ps", "-q", "sim").stdout.split()
    assert inspect(name, "{{.HostConfig.ReadonlyRootfs}}") == "true"
    script = "import os; assert os.getuid() != 0; open('/opt/servebench/x', 'w')"
    done = stack.compose("exec", "-T", "sim", "python3", "-c", script, check=False)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr


def test_the_page_is_published_on_this_machine_only_and_the_rpc_port_nowhere(stack: Stack) -> None:
    services = json.loads(stack.compose("--profile", "headless", "config", "--format", "json").stdout)["services"]
    published = {
        (name, port["host_ip"], port["target"])
        for name, service in services.items()
        for port in service.get("ports", [])
    }
    assert published == {("master", "127.0.0.1", 8089)}


def test_a_stopped_worker_writes_what_it_has_before_it_goes(stack: Stack) -> None:
    stack.compose("up", "-d", "--no-build", "--scale", "worker=2", "sim", "worker")
    before = set(stack.runs.glob("2*"))
    run = stack.start(
        *("run", "--rm", "-T", "--use-aliases", "headless"),
        *("/runs/compose.yaml", "--expect-workers", "2", "--show-invalid"),
    )
    deadline = time.monotonic() + 120
    while not any(new.glob("requests/part-*.parquet") for new in set(stack.runs.glob("2*")) - before):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    name = stack.compose("ps", "-q", "worker").stdout.split()[0]
    subprocess.run(["docker", "stop", name], check=True, capture_output=True)
    run.communicate(timeout=300)
    (folder,) = set(stack.runs.glob("2*")) - before
    manifest = manifest_of(folder)
    assert {item["cause"] for item in manifest["lost_detail"]} <= {"undispatched"}, "nothing it had begun is lost"
    assert {worker["state"] for worker in manifest["workers"]} == {"closed"}
