"""The compose file as people use it: master, three workers, one killed and one stopped in mid-run, results on the host.

Needs a container engine with compose and the base image that engine.sh makes; `make test-compose` sees to both.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.nodes import lost_of, manifest_of, rows_of

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
FILES = ("-f", str(ROOT / "docker" / "compose.yaml"), "-f", str(Path(__file__).with_name("internal.yaml")))
BASE = os.environ.get("PYTHON_IMAGE", "servebench-base:local")
PROMETHEUS = "servebench-prometheus:test"
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
            "PYTHON_IMAGE": BASE,
            "PROMETHEUS_IMAGE": PROMETHEUS,
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

    def prometheus(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the data that Prometheus answers a path of its API; it has no port that the host may reach here."""
        script = (
            "import sys, urllib.request as u; "
            "sys.stdout.write(u.urlopen('http://prometheus:9090/api/v1/' + sys.argv[1], timeout=5).read().decode())"
        )
        return json.loads(self.compose("exec", "-T", "sim", "python3", "-c", script, path).stdout)["data"]

    def ask_prometheus(self, *queries: str) -> dict[str, Any]:
        """Return the series of each query, once the last one has some."""
        deadline = time.monotonic() + 60
        while True:
            found = {query: self.prometheus(f"query?query={query}")["result"] for query in queries}
            if found[queries[-1]] or time.monotonic() > deadline:
                return found
            time.sleep(0.5)

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
    command = ["docker", "inspect", "-f", form, name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    look = ["docker", "image", "inspect", BASE]
    if shutil.which("docker") is None or subprocess.run(look, check=False, capture_output=True, timeout=60).returncode:
        pytest.skip("no container engine with the base image here; `make test-compose` makes both")
    made = Stack(tmp_path_factory.mktemp("compose"))
    made.compose("build", "sim")
    build_prometheus()
    made.compose("up", "-d", "--no-build", "--scale", "worker=3", "sim", "worker", "prometheus")
    yield made
    made.compose("--profile", "headless", "down", "--volumes", "--timeout", "2", check=False)


def build_prometheus() -> None:
    """Make an image with Debian's Prometheus: no registry need be in reach. It is laid out as the official one."""
    lines = (
        f"FROM {BASE}",
        "RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus \\",
        "    && mkdir -p /prometheus && chown 65534:65534 /prometheus",
        'ENTRYPOINT ["prometheus"]',
    )
    command = ["docker", "build", "-q", "-t", PROMETHEUS, "-"]
    subprocess.run(command, input="\n".join(lines).encode(), check=True, capture_output=True, timeout=300)


@dataclass(frozen=True)
class Survived:
    """A headless run of three workers: one container was killed in its midst, another stopped."""

    folder: Path
    code: int
    output: str
    killed: str
    stopped: str
    alerting: dict[str, Any]
    """What Prometheus said of its targets and of the run's figures meanwhile."""


@pytest.fixture(scope="module")
def survived(stack: Stack) -> Survived:
    run = stack.start(
        *("run", "--rm", "-T", "--use-aliases", "headless"),
        *("/runs/compose.yaml", "--expect-workers", "3", "--show-invalid"),
    )
    folder = stack.await_parts(3)
    names = stack.compose("ps", "-q", "worker").stdout.split()
    killed, stopped = (inspect(name, "{{.Config.Hostname}}") for name in names[:2])
    # The engine starts it again: it joins the run as a new worker.
    os.kill(int(inspect(names[0], "{{.State.Pid}}")), signal.SIGKILL)
    subprocess.run(["docker", "stop", names[1]], check=True, capture_output=True, timeout=120)
    figures = stack.ask_prometheus("up", "servebench_run_running", "servebench_ttft_seconds_count")
    try:
        output, _ = run.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        events = (folder / "events.jsonl").read_text(encoding="utf-8")
        logs = stack.compose("--profile", "headless", "logs", "--tail", "30").stdout
        run.kill()
        run.communicate(timeout=60)
        pytest.fail(f"the run did not end\n{events}\n{logs}")
    return Survived(folder, run.returncode, output, killed, stopped, figures)


def test_a_headless_run_survives_a_killed_container_and_ends_with_its_verdicts_exit_code(survived: Survived) -> None:
    manifest, rows = manifest_of(survived.folder), rows_of(survived.folder)
    # A share of a dead worker is more than 1 % of so short a run: INVALID, and said so by the exit code.
    assert survived.code == {"valid": 0, "invalid": 3}[manifest["verdict"]["status"]], survived.output
    assert manifest["state"] == "merged"
    seqs, lost = [row["seq"] for row in rows], lost_of(manifest)
    assert seqs
    assert len(seqs) == len(set(seqs))
    assert set(seqs) | lost == set(range(manifest["planned"]))
    assert not set(seqs) & lost
    states = [worker["state"] for worker in manifest["workers"] if worker["host"] == survived.killed]
    assert states[0] == "lost", manifest["workers"]
    assert {row["outcome"] for row in rows} == {"ok"}


def test_a_stopped_worker_writes_what_it_has_before_it_goes(survived: Survived) -> None:
    manifest = manifest_of(survived.folder)
    (record,) = [worker for worker in manifest["workers"] if worker["host"] == survived.stopped]
    assert record["state"] == "closed", survived.output
    assert record["begun"] == record["rows"] > 0
    mine = [item for item in manifest["lost_detail"] if item["worker"] == record["worker"]]
    assert {item["cause"] for item in mine} <= {"undispatched"}, "nothing it had begun is lost"


def test_results_belong_to_the_given_user_and_are_readable(survived: Survived) -> None:
    files = [path for path in survived.folder.rglob("*") if path.is_file()]
    assert {path.stat().st_uid for path in files} == {USER}
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in files)


def test_prometheus_has_the_figures_of_a_headless_run_and_the_alert_rules(stack: Stack, survived: Survived) -> None:
    targets = {series["metric"]["job"]: series["value"][1] for series in survived.alerting["up"]}
    assert targets == {"servebench": "1", "engine": "1"}
    assert [series["value"][1] for series in survived.alerting["servebench_run_running"]] == ["1"]
    assert float(survived.alerting["servebench_ttft_seconds_count"][0]["value"][1]) > 0
    rules = stack.prometheus("rules")["groups"]
    assert "ServebenchWorkerLost" in {rule["name"] for group in rules for rule in group["rules"]}


def test_containers_run_without_root_and_cannot_write_their_image(stack: Stack) -> None:
    (name,) = stack.compose("ps", "-q", "sim").stdout.split()
    assert inspect(name, "{{.HostConfig.ReadonlyRootfs}}") == "true"
    script = "import os; assert os.getuid() != 0; open('/opt/servebench/x', 'w')"
    done = stack.compose("exec", "-T", "sim", "python3", "-c", script, check=False)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr
