"""Know the commands on finished runs: `merge`, `table`, `report`. None of them needs the service again."""

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servebench.cli.base import command, option, say, show
from servebench.cli.finish import Wanted, show_results, shown_path
from servebench.cli.terminal import columns_of, fitted
from servebench.core.errors import InputError
from servebench.core.outcomes import ExitCode, Status

if TYPE_CHECKING:
    from servebench.analysis.digest import Examined
    from servebench.analysis.tables import Table

RUN = click.Path(path_type=Path, file_okay=False)


@command(
    "merge",
    "Complete a run folder and print its summary.",
    examples=("merge runs/20260903T121203Z-chat-burst-1f3a", "merge runs/20260903T121203Z-chat-burst-1f3a --json"),
)
@click.argument("run", type=RUN)
@option("--json", "as_json", is_flag=True, help="Print summary.json instead of the table.")
@option("--show-invalid", is_flag=True, help="Print the table of an INVALID run too.")
@option("--no-report", is_flag=True, help="Do not write report.html.")
@option("--no-compact", is_flag=True, help="Leave small parts as they are.")
@option("--executor", metavar="dask://HOST:PORT", help="Dask cluster that shares the reading and sees the same files.")
def merge(
    *, run: Path, as_json: bool, show_invalid: bool, no_report: bool, no_compact: bool, executor: str | None
) -> int:
    """Check that the parts of a run are complete; write run.json, summary.json, tables/*.csv and report.html.

    Also for a run whose master died. Rows are not changed; small parts of a run that ended in order are put together.
    Exit code: that of the verdict.
    """
    wanted = Wanted(
        as_json=as_json,
        show_invalid=show_invalid,
        report=not no_report,
        compact=not no_compact,
        executor=executor,
    )
    return show_results(run, wanted)


@command(
    "table",
    "Print the percentile table of a run.",
    examples=(
        "table runs/20260903T121203Z-chat-burst-1f3a --by phase",
        "table runs/20260903T121203Z-chat-burst-1f3a --format json",
    ),
)
@click.argument("run", type=RUN, required=False)
@option("--by", default="phase", show_default=True, metavar="COLUMN,…", help="Columns of requests to group by.")
@option("--format", "form", type=click.Choice(["text", "md", "csv", "json"]), default="text", show_default=True)
@option("--all-quantiles", is_flag=True, help="Also those with fewer than 10 samples beyond them.")
@option("--warmup", is_flag=True, help="Also phases that are not measured.")
@option("--all-metrics", is_flag=True, help="Also metrics of minor interest; csv and json always hold them.")
@option("--dialect", metavar="TOOL", help="What another tool would have printed: vllm, guidellm, aiperf, locust, …")
@option("--dialects", is_flag=True, help="All of them beside our numbers, with the reason of each difference.")
@option("--explain", metavar="METRIC", help="Say what a metric is, and stop.")
def table(
    *,
    run: Path | None,
    by: str,
    form: str,
    all_quantiles: bool,
    warmup: bool,
    all_metrics: bool,
    dialect: str | None,
    dialects: bool,
    explain: str | None,
) -> int:
    """Print percentiles of every metric, grouped by phase or by any other column of `requests`.

    A run that is not merged yet is read as it is; nothing is written. Exit code 3 when the run is INVALID.
    """
    if explain is not None:
        show(explanation(explain))
        return ExitCode.OK
    if run is None:
        msg = "table needs a run folder.\n  try: servebench table runs/…"
        raise InputError(msg)
    from servebench.analysis.digest import examine
    from servebench.analysis.pool import helpers
    from servebench.analysis.tables import percentile_table

    columns = [name.strip() for name in by.split(",") if name.strip()]
    with helpers(run) as executor:
        examined = examine(run, executor)
        if dialect is not None or dialects:
            click.echo(_in_dialect(examined, None if dialects else dialect, form), nl=False)
            return verdict_code(examined)
        found = percentile_table(examined.run, columns, all_quantiles=all_quantiles, warmup=warmup)
    click.echo(_rendered(found, form, every=all_metrics), nl=False)
    return verdict_code(examined)


@command(
    "report",
    "Write report.html of a run, or a page of several runs.",
    examples=(
        "report runs/20260903T121203Z-chat-burst-1f3a --open",
        "report runs/20260903T121203Z-base-1f3a runs/20260903T133310Z-new-77ab",
    ),
)
@click.argument("runs", type=RUN, nargs=-1, required=True, metavar="RUN...")
@option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File; default: in the run, runs.html for several."
)
@option("--assets", type=RUN, metavar="DIR", help="Put plotly's script there, not into the page.")
@option("--open", "show", is_flag=True, help="Open it in the browser.")
def report(*, runs: tuple[Path, ...], out: Path | None, assets: Path | None, show: bool) -> int:
    """Merge a run and write its report: one file that needs no network. Prints the path.

    Several runs are put side by side, one curve each, into runs.html in the working folder; they are not merged.
    Exit code 3 when a run is INVALID.
    """
    path, code = _one_report(runs[0], out, assets) if len(runs) == 1 else _several_reports(runs, out, assets)
    click.echo(shown_path(path))
    if show:
        webbrowser.open(path.absolute().as_uri())
    return code


def _one_report(run: Path, out: Path | None, assets: Path | None) -> tuple[Path, int]:
    from servebench.analysis.digest import examine
    from servebench.analysis.merge import write_outputs
    from servebench.analysis.pool import helpers
    from servebench.analysis.report import REPORT_NAME, report_page, write_page

    path = _in_a_folder(out or run / REPORT_NAME)
    with helpers(run) as executor:
        examined = examine(run, executor)
        write_outputs(run, examined.digest)
        write_page(path, *report_page(examined), assets=assets)
    return path, verdict_code(examined)


def _several_reports(runs: tuple[Path, ...], out: Path | None, assets: Path | None) -> tuple[Path, int]:
    from servebench.analysis.digest import examine
    from servebench.analysis.report import several_page, write_page

    path = _in_a_folder(out or Path("runs.html"))
    examined = [(run, examine(run)) for run in runs]
    write_page(path, *several_page(examined), assets=assets)
    return path, max(verdict_code(one, str(run)) for run, one in examined)


def _in_a_folder(path: Path) -> Path:
    """Return the path; raises InputError where its folder does not exist."""
    if not path.absolute().parent.is_dir():
        msg = f"{path.parent} is no folder; make it first, or name another file with --out"
        raise InputError(msg)
    return path


def explanation(name: str) -> str:
    """Return what the registry says of a metric.

    Raises InputError for a name that it does not hold.
    """
    from servebench.metrics import METRICS

    for metric in METRICS:
        if metric.name == name:
            lines = [
                f"{metric.name}: {metric.title}, {metric.unit}",
                f"  from       {metric.start_event}",
                f"  to         {metric.stop_event}",
                f"  formula    {metric.formula}",
                f"  undefined  {metric.undefined_when}",
                f"  columns    {metric.source}",
                *(
                    f"  {'elsewhere' if not i else '':<11}{tool}: {word}"
                    for i, (tool, word) in enumerate(metric.aka.items())
                ),
            ]
            return "\n".join(lines)
    msg = f'no metric "{name}". There are: {", ".join(metric.name for metric in METRICS)}.'
    raise InputError(msg)


def _in_dialect(examined: "Examined", name: str | None, form: str) -> str:
    """Return what other tools would print; None = all beside ours.

    Raises InputError for an unknown tool.
    """
    import msgspec

    from servebench.analysis import dialects
    from servebench.metrics.dialects import DIALECTS

    chosen = DIALECTS if name is None else (dialects.dialect_named(name),)
    if form == "json":
        found = [line for one in chosen for line in dialects.records(dialects.speak(examined.run, one))]
        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    if name is None:
        return dialects.side_by_side(examined.run)
    speech = dialects.speak(examined.run, chosen[0])
    return dialects.as_block(speech) if name in {"vllm", "sglang"} else dialects.as_lines(speech)


def _rendered(table: "Table", form: str, *, every: bool) -> str:
    from servebench.analysis import render

    if form in {"csv", "json"}:
        return render.as_csv(table) if form == "csv" else render.as_json(table)
    if form == "md":
        return render.as_markdown(table, every=every)
    columns = columns_of(sys.stdout)
    return fitted(render.as_text(table, every=every, columns=columns), columns)


def verdict_code(examined: "Examined", name: str | None = None) -> int:
    """Return the exit code of a command that shows a run, after saying on stderr why its numbers must not be used.

    `name`: which of several runs it is.
    """
    verdict = examined.digest.manifest.verdict
    if verdict is None or verdict.status != Status.INVALID:
        return ExitCode.OK
    say(f"{name + ' is ' if name else ''}INVALID: do not use these numbers")
    for reason in verdict.reasons:
        say(f"  - {reason}")
    return ExitCode.INVALID
