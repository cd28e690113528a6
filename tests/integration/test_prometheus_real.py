"""The master's metrics in a real Prometheus that scrapes a real run; the alert rules in promtool."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import free_port
from tests.servers.simulator import sim_starter

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
    pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason="no prometheus and promtool on this machine"),
]

ROOT = Path(__file__).parents[2]
DASHBOARDS = ROOT / "dashboards"
MAY_BE_EMPTY = re.compile(r"errors_total|outcome!~|offset")
"""Nothing failed in this run, and the phase began when the run did."""


def promtool(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], cwd=DASHBOARDS, input=stdin, capture_output=True, check=False)


def test_the_alert_rules_raise_what_they_should_and_nothing_else() -> None:
    checked, tested = promtool("check", "rules", "alerts.yml"), promtool("test", "rules", "alerts_test.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert tested.returncode == 0, tested.stdout + tested.stderr


def got(url: str) -> bytes | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            data: bytes = answer.read()
            return data
    except (urllib.error.URLError, OSError):
        return None


def awaited(what: Callable[[], Any], seconds: float = 60) -> Any:  # noqa: ANN401 - what the caller waits for
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.2)
    pytest.fail("it did not come in time")


def asked(server: str, expr: str) -> list[Any]:
    """Return what Prometheus answers to a panel's query, its variables filled in."""
    filled = expr.replace("$__rate_interval", "10s").replace("$job", ".*").replace("$instance", ".*")
    data = got(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': filled})}")
    assert data is not None, f"refused: {filled}"
    result: list[Any] = json.loads(data)["data"]["result"]
    return result


def test_every_panel_of_every_dashboard_has_data_of_a_real_run(tmp_path: Path) -> None:
    port, metrics = free_port(), free_port()
    job = {"job_name": "servebench", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    environment = {**kept, "PYTHONPATH": str(ROOT / "src"), "SERVEBENCH_METRICS_LISTEN": f"127.0.0.1:{metrics}"}
    assert PROMETHEUS is not None
    with sim_starter(tmp_path) as start_sim, (tmp_path / "out.log").open("wb") as log:
        sim = start_sim(preset="demo")
        run = [sys.executable, "-m", "servebench.cli", "run", "--url", f"http://127.0.0.1:{sim.port}"]
        run += ["--rate", "5", "--duration", "40s", "--output-tokens", "20", "--workers", "1"]
        command = [PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=tsdb"]
        command += [f"--web.listen-address=127.0.0.1:{port}"]
        prometheus = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        bench = subprocess.Popen(run, cwd=tmp_path, env=environment, stdout=log, stderr=log)
        server = f"http://127.0.0.1:{port}"
        try:
            page = awaited(lambda: got(f"http://127.0.0.1:{metrics}/metrics"))
            checked = promtool("check", "metrics", stdin=page)
            assert checked.returncode == 0, checked.stderr
            awaited(lambda: got(f"{server}/-/ready"))
            awaited(
                lambda: got(f"{server}/api/v1/query?query=1") and asked(server, "servebench_ttft_seconds_count > 20")
            )
            (told,) = asked(server, "servebench_client_cpu_ratio")
            assert re.fullmatch(r"w0-[0-9a-f]{8}", told["metric"]["worker"]), "the name of its files"
            panels = [
                (path.stem, panel["title"], target["expr"])
                for path in sorted(DASHBOARDS.glob("*.json"))
                for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]
                for target in panel.get("targets", [])
            ]
            empty = [(*place, expr) for *place, expr in panels if not asked(server, expr)]
            assert len(panels) > 40
            assert [one for one in empty if not MAY_BE_EMPTY.search(one[-1])] == []
        finally:
            for process in (bench, prometheus):
                process.terminate()
            for process in (bench, prometheus):
                process.wait(60)
