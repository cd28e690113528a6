"""Know what happens after the load: merge, report, summary, exit code."""

import shlex
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from servebench.cli.base import say, show
from servebench.cli.watch import Cluster, last_words, move_logs
from servebench.core.errors import HarnessError, InputError, ServebenchError
from servebench.core.outcomes import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How results are wanted on stdout; `executor`: address of a cluster that helps to read, None = this machine."""

    quiet: bool = False
    as_json: bool = False
    report: bool = True
    show_invalid: bool = False
    executor: str | None = None
    compact: bool = True
    silent: bool = False
    """Nothing on stdout: the run is part of a larger answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a run ended; `folder` None = it was stopped before it had one."""

    exit_code: int
    folder: Path | None


def conclude(cluster: Cluster, code: int, wanted: Wanted, *, asked_to_stop: bool) -> Ended:
    """Turn an ended master and its run folder into results on stdout.

    Raises InputError or HarnessError with the fault, or the master's last words, when it failed.
    """
    folder = cluster.folders[-1] if cluster.folders else None
    words = [f"  {cluster.fault}"] if cluster.fault else last_words(cluster.master)
    if folder is None or not folder.is_dir():
        return _nothing(cluster, code, words, asked_to_stop=asked_to_stop)
    move_logs(cluster.scratch, folder)
    if code in {ExitCode.OK, ExitCode.INTERRUPTED}:
        verdict_code = show_results(folder, wanted)
        return Ended(exit_code=code if code == ExitCode.INTERRUPTED else verdict_code, folder=folder)
    _save_what_there_is(folder)
    raise failure(code, words, folder / "log" / cluster.master.log.name)


def _nothing(cluster: Cluster, code: int, words: list[str], *, asked_to_stop: bool) -> Ended:
    # A stop may come before Locust has its own handlers: it then dies of the signal itself.
    if asked_to_stop:
        shutil.rmtree(cluster.scratch, ignore_errors=True)
        say("Stopped before the first request; nothing was recorded.")
        return Ended(exit_code=ExitCode.INTERRUPTED, folder=None)
    raise failure(code, words, cluster.master.log)


def failure(code: int, words: list[str], log: Path) -> ServebenchError:
    """Return the error that a failed master stands for."""
    if code == ExitCode.BAD_INPUT:
        return InputError("\n".join(["the load generator refused the run", *words]))
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return HarnessError("\n".join([f"the load generator failed ({ended}); its log is {log}", *words]))


def show_results(folder: Path, wanted: Wanted) -> int:
    """Merge a run, write its report, print the summary on stdout; return the exit code of its verdict."""
    from servebench.analysis.digest import examine
    from servebench.analysis.merge import SUMMARY_NAME, compact_parts, fetch_parts, write_outputs
    from servebench.analysis.pool import helpers
    from servebench.analysis.report import write_report
    from servebench.analysis.text import summary_lines, verdict_line
    from servebench.analysis.verdict import exit_code

    fetch_parts(folder)
    if wanted.compact:
        compact_parts(folder)
    with helpers(folder, wanted.executor) as executor:
        examined = examine(folder, executor)
        found = examined.digest
        write_outputs(folder, found)
        report = shown_path(write_report(folder, examined)) if wanted.report else None
    if wanted.silent:
        pass
    elif wanted.as_json:
        click.echo((folder / SUMMARY_NAME).read_text(encoding="utf-8").rstrip())
    elif wanted.quiet:
        click.echo(verdict_line(found))
    else:
        shown = summary_lines(found, shown_path(folder), report=report, show_invalid=wanted.show_invalid)
        show("\n".join(shown))
    verdict = found.manifest.verdict
    return ExitCode.HARNESS if verdict is None else exit_code(verdict)


def new_folder(out: Path, name: str) -> Path:
    """Return a new folder for several runs that belong together. Raises InputError where it cannot be made."""
    from servebench.shards.folder import new_run_id, new_token

    folder = out / new_run_id(datetime.now(UTC), name, new_token())
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        msg = f"cannot write into --out {out}: {error.strerror}\n  try: --out DIR with a folder that you may write to"
        raise InputError(msg) from error
    return folder


def shown_path(path: Path) -> str:
    """Return a path as a person would type it here: relative when it lies below the working folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def next_command(*words: str | Path) -> str:
    """Return a command line that works when pasted."""
    return shlex.join(["servebench", *(str(word) for word in words)])


def _save_what_there_is(folder: Path) -> None:
    """Make a run readable whose master failed; what hinders it is told and is not the error to report."""
    from servebench.analysis.merge import merge

    try:
        merge(folder)
    except Exception as error:  # noqa: BLE001 - whatever it is, the failure of the run is what must be told
        say(f"the run up to the failure could not be merged: {error}")
    else:
        say(f"what was recorded up to the failure is in {folder}")
