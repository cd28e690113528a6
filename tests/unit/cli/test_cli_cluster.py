"""What the children of a run are started with."""

import json
import os
from pathlib import Path

import pytest

from servebench.cli.cluster import (
    Launch,
    WebUi,
    locustfile,
    master_command,
    master_environment,
    worker_command,
    worker_environment,
    worker_flags,
)
from servebench.cli.main import cli
from servebench.cli.run import bind_of
from servebench.cli.way_options import Way
from servebench.core.errors import InputError

SECRET_URL = "http://user:pw-canary-41@127.0.0.1:8001/v1?api-key=sk-canary-42"


def _launch(**given: object) -> Launch:
    known: dict[str, object] = {"workload_json": b"{}", "url": SECRET_URL, "out": Path("runs"), "expect_workers": 3}
    return Launch(**(known | given))  # type: ignore[arg-type] # a builder: keys are fields


def test_the_locustfile_is_found_as_an_absolute_path() -> None:
    assert locustfile().is_absolute()
    assert locustfile().name == "locustfile.py"


def test_no_command_line_holds_a_secret() -> None:
    words = [*master_command(_launch()), *master_command(_launch(web=WebUi(host="127.0.0.1", port=8089)))]
    assert "canary" not in " ".join([*words, *worker_command("127.0.0.1", 5557)])
    assert words[words.index("--host") + 1] == "http://127.0.0.1:8001/v1"


def test_a_headless_master_waits_for_all_its_workers_and_has_one_user_each() -> None:
    words = master_command(_launch())
    for pair in (("--expect-workers", "3"), ("-u", "3"), ("-r", "3")):
        assert words[words.index(pair[0]) + 1] == pair[1]
    assert "--headless" in words
    assert "--web-port" not in words


def test_a_master_with_a_web_page_has_no_users_before_start_is_pressed() -> None:
    words = master_command(_launch(web=WebUi(host="127.0.0.1", port=8090)))
    assert "--headless" not in words
    assert words[words.index("--web-port") + 1] == "8090"


def test_the_full_address_goes_by_the_environment() -> None:
    environment = master_environment(
        {}, _launch(drain_ns=1_500_000_000, command=("servebench", "run")), Path("/w.json"), 7
    )
    assert environment["SERVEBENCH_URL"] == SECRET_URL
    assert environment["SERVEBENCH_WORKLOAD"] == "/w.json"
    assert environment["SERVEBENCH_DRAIN_S"] == "1.5"
    assert environment["SERVEBENCH_PROGRESS_FD"] == "7"
    assert json.loads(environment["SERVEBENCH_COMMAND"]) == ["servebench", "run"]
    assert Path(environment["SERVEBENCH_OUT"]).is_absolute()


def test_what_another_run_left_in_the_environment_is_dropped() -> None:
    base = {"LOCUST_USERS": "9", "SERVEBENCH_MODEL": "old", "SERVEBENCH_PROGRESS_FD": "3", "HOME": "/h"}
    environment = worker_environment(base, _launch(), None)
    assert not {"LOCUST_USERS", "SERVEBENCH_MODEL", "SERVEBENCH_PROGRESS_FD"} & set(environment)
    assert environment["HOME"] == "/h"


def test_the_key_reaches_workers_only_and_its_file_as_an_absolute_path() -> None:
    base = {"SERVEBENCH_API_KEY": "sk-canary", "SERVEBENCH_API_KEY_FILE": "key.txt"}
    worker = worker_environment(base, _launch(model="m"), None)
    assert worker["SERVEBENCH_API_KEY"] == "sk-canary"
    assert worker["SERVEBENCH_API_KEY_FILE"] == str(Path("key.txt").absolute())
    assert "canary" not in "".join(
        v for k, v in master_environment(base, _launch(model="m"), None, None).items() if k != "SERVEBENCH_URL"
    )
    assert master_environment(base, _launch(), None, None)["SERVEBENCH_API_KEY"] == "sk-canary", "it asks for the model"
    assert "SERVEBENCH_API_KEY" not in worker_environment(base, _launch(with_key=False), None)


def test_only_the_master_is_told_who_may_use_the_page() -> None:
    base = {"SERVEBENCH_WEB_LOGIN": "eve:pw-canary", "SERVEBENCH_WEB_LOGIN_FILE": "login.txt"}
    master = master_environment(base, _launch(), None, None)
    assert master["SERVEBENCH_WEB_LOGIN"] == "eve:pw-canary"
    assert master["SERVEBENCH_WEB_LOGIN_FILE"] == str(Path("login.txt").absolute())
    assert not {name for name in worker_environment(base, _launch(), None) if "WEB_LOGIN" in name}


def test_what_options_say_reaches_the_workers_beside_the_secrets_and_wins(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("api-key: sk-canary\nX-Team: old\n", encoding="utf-8")
    base = {"SERVEBENCH_HEADERS_FILE": str(file), "SERVEBENCH_PROXY": "http://me:pw-canary@p:1"}
    way = Way(headers={"x-team": "search"}, proxy="http://q:2")
    worker = worker_environment(base, _launch(way=way, model="m"), None)
    assert worker["SERVEBENCH_HEADERS"].splitlines() == ["api-key: sk-canary", "x-team: search"]
    assert "SERVEBENCH_HEADERS_FILE" not in worker
    assert worker["SERVEBENCH_PROXY"] == "http://q:2"
    assert worker_environment(base, _launch(model="m"), None)["SERVEBENCH_PROXY"] == "http://me:pw-canary@p:1"


def test_a_relative_pythonpath_still_points_to_the_same_folder() -> None:
    environment = worker_environment({"PYTHONPATH": os.pathsep.join(["src", "/abs"])}, _launch(), None)
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(Path("src").absolute()), "/abs"]


def test_workers_take_over_the_log_level_only() -> None:
    assert worker_flags(("--csv", "/x", "--loglevel", "DEBUG", "--web-login")) == ("--loglevel", "DEBUG")
    assert worker_flags(()) == ()


def test_a_bind_address_may_lack_its_port() -> None:
    assert bind_of("10.0.0.2", local=False) == ("10.0.0.2", 5557)
    assert bind_of("10.0.0.2:6000", local=False) == ("10.0.0.2", 6000)
    assert bind_of("[::1]:6000", local=False) == ("::1", 6000)
    assert bind_of(None, local=False) == ("0.0.0.0", 5557)
    with pytest.raises(InputError, match="port"):
        bind_of("10.0.0.2:x", local=False)


@pytest.mark.parametrize("out", ["/proc", "{folder}/file/runs"], ids=["a file system that takes no files", "a file"])
@pytest.mark.parametrize(
    "command",
    [
        ("worker", "--master", "127.0.0.1:9"),
        ("master", "builtin:bursty", "--url", "http://127.0.0.1:9", "--expect-workers", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_node_that_cannot_write_its_folder_of_runs_says_so_before_it_waits(
    command: tuple[str, ...], out: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    chosen = out.format(folder=tmp_path)
    with pytest.raises(InputError, match="cannot write into --out") as caught:
        cli.main([*command, "--out", chosen], standalone_mode=False)
    assert chosen in str(caught.value)
    assert "try: --out DIR" in str(caught.value)
