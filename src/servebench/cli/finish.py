"""Know what happens after the load: merge, report, summary, exit code."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import click

from servebench.cli.base import say
from servebench.cli.processes import tail
from servebench.cli.watch import Cluster, last_words, move_logs
from servebench.core.errors import HarnessError, InputError, ServebenchError
from servebench.core.outcomes import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How results are wanted on stdout."""

    quiet: bool = False
    as_json: bool = False
    report: bool = True


def conclude(cluster: Cluster, code: int, wanted: Wanted) -> int:
    """Turn an ended master and its run folder into results on stdout; return the command's exit code.

    Raises InputError or HarnessError with the master's last words when it failed.
    """
    folder = cluster.folders[-1] if cluster.folders else None
    if folder is not None and folder.is_dir():
        log = folder / "log" / cluster.master.log.name
        words = [f"  master: {line}" for line in tail(cluster.master.log)]
        move_logs(cluster.scratch, folder)
    else:
        folder, log, words = None, cluster.master.log, last_words(cluster.master)
    if code in {ExitCode.OK, ExitCode.INTERRUPTED}:
        return _results(folder, code, wanted)
    if folder is not None:
        _save_what_there_is(folder)
    if code == ExitCode.BAD_INPUT:
        raise InputError("\n".join(["the load generator refused the run", *words]))
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}"
    raise HarnessError("\n".join([f"the load generator failed ({ended}); its log is {log}", *words]))


def _results(folder: Path | None, code: int, wanted: Wanted) -> int:
    if folder is not None:
        verdict_code = show_results(folder, wanted)
        return code if code == ExitCode.INTERRUPTED else verdict_code
    if code == ExitCode.INTERRUPTED:
        say("Stopped before the first request; nothing was recorded.")
        return code
    msg = "the load generator ended without a run folder"
    raise HarnessError(msg)


def show_results(folder: Path, wanted: Wanted) -> int:
    """Merge a run, write its report, print the summary on stdout; return the exit code of its verdict."""
    from servebench.analysis.merge import merge
    from servebench.analysis.report import write_report
    from servebench.analysis.text import summary_lines
    from servebench.analysis.verdict import exit_code

    manifest = merge(folder)
    if wanted.report:
        write_report(folder)
    if wanted.as_json:
        click.echo((folder / "summary.json").read_text(encoding="utf-8").rstrip())
    else:
        lines = summary_lines(folder)
        click.echo("\n".join(lines[:1] if wanted.quiet else lines))
    return exit_code(manifest.verdict)


def next_command(*words: str | Path) -> str:
    """Return a command line that works when pasted."""
    return shlex.join(["servebench", *(str(word) for word in words)])


def _save_what_there_is(folder: Path) -> None:
    """Make a run readable whose master failed; what hinders it is told and is not the error to report."""
    from servebench.analysis.merge import merge

    try:
        merge(folder)
    except ServebenchError as error:
        say(f"the run up to the failure could not be merged: {error}")
    else:
        say(f"what was recorded up to the failure is in {folder}")
