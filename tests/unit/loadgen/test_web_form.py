"""What the forms of the web page may hold, which runs it lists and which files it gives."""

import json
from pathlib import Path

import pytest

from servebench.core.target import Target
from servebench.loadgen.desk.web_form import form_fault
from servebench.loadgen.desk.web_runs import file_of, list_runs

RUN = "20260101T000000Z-chat-00ff"


def reached(_target: Target) -> str | None:
    return None


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({"user_count": "0"}, "Offered rate: 0 must be above 0"),
        ({"user_count": "-3"}, "Offered rate: -3 must be above 0"),
        ({"user_count": "2.5"}, "2.5 must be a whole number"),
        ({"user_count": "many"}, '"many" is no number'),
        ({"user_count": "nan"}, "nan must be above 0"),
        ({"spawn_rate": "0"}, "Change of the rate: 0 must be above 0"),
        ({"rate_per_user": "-1"}, "Rate per user: -1 must be above 0"),
        ({"host": "htp:/x"}, 'Host: "htp:/x" is no http:// or https:// address.\n  try: http://127.0.0.1:8000'),
        ({"host": ""}, 'Host: "" is no http'),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_the_value(form: dict[str, str], word: str) -> None:
    fault = form_fault(form, running_host=None, reach=reached)
    assert fault is not None
    assert word in fault


def test_a_good_form_goes_on() -> None:
    form = {"user_count": "20", "spawn_rate": "0.5", "host": "http://127.0.0.1:8000", "rate_per_user": "0.25"}
    assert form_fault(form, running_host=None, reach=reached) is None


def test_a_host_that_cannot_be_reached_is_refused_with_the_reason() -> None:
    form = {"host": "http://127.0.0.1:9"}
    fault = form_fault(form, running_host=None, reach=lambda target: f"nothing listens at {target.redacted}")
    assert fault == "Host: nothing listens at http://127.0.0.1:9"


@pytest.mark.parametrize("host", ["http://eve:pw-canary@10.0.0.1:8000", "http://10.0.0.1:8000/v1?key=canary"])
def test_a_host_that_holds_a_secret_is_refused_without_repeating_it(host: str) -> None:
    fault = form_fault({"host": host}, running_host=None, reach=reached)
    assert fault is not None
    assert "no user, password or query here" in fault
    assert "canary" not in fault


def test_while_a_run_goes_on_its_host_stays() -> None:
    going = "http://127.0.0.1:8000"
    assert form_fault({"user_count": "5", "host": going + "/"}, running_host=going, reach=reached) is None
    fault = form_fault({"host": "http://10.0.0.1:1"}, running_host=going, reach=reached)
    assert fault == f"Host: the run goes on to {going}; stop it before you choose another"


def test_runs_are_listed_newest_first_with_their_verdict(tmp_path: Path) -> None:
    older, newer = tmp_path / RUN, tmp_path / RUN.replace("2026", "2027")
    for folder, verdict in ((older, {"status": "valid", "objectives": "met"}), (newer, None)):
        folder.mkdir()
        manifest = {"name": "chat", "state": "closed", "rows": 7, "verdict": verdict, "target_url": "http://h"}
        (folder / "run.json").write_text(json.dumps(manifest), encoding="utf-8")
    (older / "report.html").write_text("x", encoding="utf-8")
    (tmp_path / "no-run").mkdir()
    first, second = list_runs(tmp_path)
    assert (first.run_id, first.verdict, first.files) == (newer.name, "", ("run.json",))
    assert (second.run_id, second.verdict, second.rows) == (RUN, "valid, objectives met", 7)
    assert second.files == ("report.html", "run.json")


def test_a_run_whose_manifest_is_torn_is_listed_all_the_same(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "run.json").write_bytes(b'{"name": ')
    (line,) = list_runs(tmp_path)
    assert (line.run_id, line.state) == (RUN, "unreadable")


@pytest.mark.parametrize(("run_id", "name"), [(RUN, "../run.json"), ("..", "run.json"), (RUN, "requests"), ("x", "a")])
def test_no_file_outside_the_list_can_be_had(tmp_path: Path, run_id: str, name: str) -> None:
    (tmp_path / RUN / "requests").mkdir(parents=True)
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    assert file_of(tmp_path, run_id, name) is None
