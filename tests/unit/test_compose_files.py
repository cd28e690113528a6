"""What the files of the compose stack promise each other; that they work is for `make test-compose`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
SERVICES = ("sim", "master", "worker", "headless", "prometheus", "grafana")


def read(name: str) -> Any:  # noqa: ANN401 - YAML
    return yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = read("compose.yaml")["services"]
    assert tuple(found) == SERVICES
    return found


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_an_init_a_read_only_root_and_no_rights(services: dict[str, Any], name: str) -> None:
    service = services[name]
    assert service["init"] is True
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not str(service["user"]).startswith(("0", "root"))


@pytest.mark.parametrize("name", [name for name in SERVICES if name != "headless"])
def test_what_runs_for_long_says_whether_it_is_well(services: dict[str, Any], name: str) -> None:
    assert services[name]["healthcheck"]["test"][0] == "CMD"


def test_pages_are_published_on_this_machine_only_and_the_port_of_the_workers_nowhere(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {
        "master": ["127.0.0.1:8089:8089"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }


def test_a_stop_leaves_time_to_drain_and_report(services: dict[str, Any]) -> None:
    assert {services[name]["stop_grace_period"] for name in ("master", "worker", "headless")} == {"45s"}


def test_only_what_sends_requests_is_given_the_key(services: dict[str, Any]) -> None:
    given = {name for name, service in services.items() if "SERVEBENCH_API_KEY" in service.get("environment", {})}
    assert given == {"worker", "headless"}  # the headless command asks the service for its models first


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Return what is mounted where, named volumes left out."""
    pairs = (volume.split(":") for volume in service["volumes"] if volume.startswith("."))
    return {inside: (DOCKER / outside).resolve() for outside, inside, mode in pairs if mode == "ro"}


def test_prometheus_scrapes_the_metrics_port_of_the_master_under_the_name_the_rules_know(
    services: dict[str, Any],
) -> None:
    config, mounted = read("prometheus.yaml"), mounts(services["prometheus"])
    assert mounted["/etc/prometheus/prometheus.yaml"] == DOCKER / "prometheus.yaml"
    assert "--config.file=/etc/prometheus/prometheus.yaml" in services["prometheus"]["command"]
    (rules,) = config["rule_files"]
    assert 'up{job="servebench"}' in mounted[rules].read_text(encoding="utf-8")
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == "servebench"]
    assert job["static_configs"] == [{"targets": ["master:9646"]}]
    listens = {services[name]["environment"]["SERVEBENCH_METRICS_LISTEN"] for name in ("master", "headless")}
    assert listens == {"0.0.0.0:9646"}
    assert services["headless"]["networks"]["bench"]["aliases"] == ["master"]


def test_grafana_is_provisioned_with_that_prometheus_and_every_dashboard(services: dict[str, Any]) -> None:
    grafana = services["grafana"]
    assert grafana["profiles"] == ["grafana"]
    mounted = mounts(grafana)
    provisioned = {Path(inside).parent.name: path for inside, path in mounted.items() if "provisioning" in inside}
    assert provisioned == {
        "datasources": DOCKER / "grafana" / "datasources.yaml",
        "dashboards": DOCKER / "grafana" / "dashboards.yaml",
    }
    (source,) = read("grafana/datasources.yaml")["datasources"]
    assert (source["type"], source["isDefault"], source["url"]) == ("prometheus", True, "http://prometheus:9090")
    (provider,) = read("grafana/dashboards.yaml")["providers"]
    shown = mounted[provider["options"]["path"]]
    assert shown == ROOT / "dashboards"
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (shown / Path(home).relative_to(provider["options"]["path"])).is_file()
    for path in shown.glob("*.json"):
        (choice,) = [v for v in json.loads(path.read_bytes())["templating"]["list"] if v["type"] == "datasource"]
        assert choice["query"] == source["type"], "its variable takes the default source of that type"
