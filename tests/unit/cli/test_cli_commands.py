"""What the commands say before anything is started: help, misspellings, wrong input."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from servebench.cli.locust_flags import LOCUST_FLAGS, argument_of
from servebench.cli.main import COMMANDS, cli

ROOT = Path(__file__).parents[3]


def servebench(
    *arguments: str, folder: Path | None = None, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does; returns its exit code, stdout and stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SERVEBENCH_")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), **(environ or {})}
    return subprocess.run(
        [sys.executable, "-m", "servebench.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def _help(name: str) -> str:
    found = CliRunner().invoke(cli, [name, "--help"], prog_name="servebench")
    assert found.exit_code == 0
    return found.output


def test_help_fits_thirty_lines_and_puts_the_demo_first() -> None:
    lines = CliRunner().invoke(cli, ["--help"], prog_name="servebench").output.splitlines()
    assert len(lines) <= 30
    listed = [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]]
    assert listed == list(COMMANDS)
    assert listed[0] == "demo"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_help_opens_with_two_examples_and_fits_sixty_lines(name: str) -> None:
    lines = _help(name).splitlines()
    assert len(lines) <= 60
    assert [line.startswith(f"  servebench {name}") for line in lines[:3]] == [True, True, False]
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_each_example_exist(name: str) -> None:
    text = _help(name)
    examples = "\n".join(text.splitlines()[:2])
    for option in re.findall(r"(--[a-z-]+)", examples):
        assert option in text.partition("Usage:")[2]


def test_help_loads_no_heavy_package() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from servebench.cli.main import cli\n"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0\n"
        "heavy = {'pandas', 'plotly', 'pyarrow', 'numpy', 'pydantic', 'rich', 'locust', 'gevent', 'yaml', 'aiohttp'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "[]"


def test_no_argument_gives_the_short_help_and_where_to_start_on_stderr() -> None:
    found = servebench()
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.rstrip().endswith("start with: servebench demo")


def test_version_is_printed_on_stdout() -> None:
    found = servebench("--version")
    assert (found.returncode, found.stderr) == (0, "")
    assert re.fullmatch(r"servebench \d+\.\d+\.\d+\n", found.stdout)


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("rum",), "no such command rum. Did you mean run?"),
        (("run", "--ulr", "x"), "no such option --ulr. Did you mean --url?"),
        (("table", "--formt", "md"), "no such option --formt. Did you mean --format?"),
        (("run", "--web-lgoin", "--url", "x"), "no such option --web-lgoin. Did you mean --web-login?"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion_and_exit_code_2(arguments: tuple[str, ...], suggestion: str) -> None:
    found = servebench(*arguments)
    assert found.returncode == 2
    assert found.stderr.startswith(f"error: {suggestion}\n")
    assert "try: servebench" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("run", "--url", "htp:/127.0.0.1", "--rate", "1", "--duration", "5s"), "is no http:// or https:// address"),
        (("run", "--rate", "1", "--duration", "5s"), "missing option '--url'"),
        (("run", "--url", "http://127.0.0.1:9", "--rate", "1"), "neither a workload file nor --rate and --duration"),
        (("run", "--url", "http://127.0.0.1:9", "--rate", "1", "--duration", "4"), '"4" has no unit; e.g. 4s, 4m'),
        (("run", "none.yaml", "--url", "http://127.0.0.1:9"), "none.yaml"),
        (("run", "none.yaml", "--url", "http://127.0.0.1:9", "--rate", "1"), "--rate and a workload file exclude each"),
        (("plan", "builtin:none"), "builtin:demo"),
        (("table", "no-such-run"), "no-such-run is no run folder"),
        (("table", "--explain", "tftt"), 'no metric "tftt". There are: ttft'),
        (("merge", "no-such-run"), "no-such-run is no run folder"),
    ],
)
def test_wrong_input_is_told_in_one_message_without_traceback(
    tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    found = servebench(*arguments, folder=tmp_path)
    assert found.returncode == 2
    assert found.stdout == ""
    assert part in found.stderr
    assert "Traceback" not in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_all_faults_of_a_workload_file_come_together(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nseeed: 1\nload:\n  kind: open\n  phases: []\n")
    found = servebench("plan", str(file))
    assert found.returncode == 2
    assert "faults" in found.stderr
    assert "seeed" in found.stderr
    assert "prompts" in found.stderr


def test_a_fault_of_our_own_exits_4_and_keeps_its_traceback_in_a_log(tmp_path: Path) -> None:
    code = (
        "import servebench.cli.results as results, servebench.cli.main as main\n"
        "results.table.callback = lambda **_: 1 / 0\n"
        "main.main(['table', 'x'])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 4
    message = "error: servebench failed: ZeroDivisionError: division by zero; the traceback is in "
    assert found.stderr.startswith(message)
    log = Path(found.stderr.removeprefix(message).strip())
    assert log.parent == tmp_path
    assert "in _outcome" in log.read_text()


def test_debug_shows_the_traceback() -> None:
    found = servebench("table", "no-such-run", "--debug")
    assert found.returncode == 2
    assert "Traceback" in found.stderr


def test_output_cut_short_by_its_reader_is_no_error() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m servebench.cli schema | head -1"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_output_that_nobody_reads_is_no_missed_objective() -> None:
    unread, ours = os.pipe()
    os.close(unread)
    with os.fdopen(ours, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "servebench.cli", "schema"],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_locust_knows_every_flag_that_passes_through() -> None:
    code = (
        "import sys, json\n"
        "from locust.argument_parser import get_parser\n"
        "print(json.dumps({s: a.nargs == 0 for a in get_parser()._actions for s in a.option_strings}))\n"
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    known: dict[str, bool] = json.loads(found.stdout)
    for flag in LOCUST_FLAGS:
        for name in flag.names:
            assert name in known, name
            assert known[name] == (flag.kind == "flag"), name


def test_passed_flags_become_locust_arguments_with_absolute_paths(tmp_path: Path) -> None:
    by_name = {flag.names[0]: flag for flag in LOCUST_FLAGS}
    assert argument_of(by_name["--csv"], "stats") == ["--csv", str(Path("stats").absolute())]
    assert argument_of(by_name["--web-login"], True) == ["--web-login"]
    assert argument_of(by_name["--loglevel"], "DEBUG") == ["--loglevel", "DEBUG"]
