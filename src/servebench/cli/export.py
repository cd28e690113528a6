"""Know the command `export`, which writes a run in the forms of others."""

from pathlib import Path
from typing import Literal, cast

import click

from servebench.cli.base import command, option, say
from servebench.cli.finish import shown_path
from servebench.core.errors import InputError
from servebench.core.outcomes import ExitCode, Status

_NAMES = {"parquet": "chunks.parquet", "csv": "chunks.csv", "vllm": "vllm-result.json"}


@command(
    "export",
    "Write a run as one row per event, or as another tool's result file.",
    examples=(
        "export runs/20260903T121203Z-chat-burst-1f3a --format parquet",
        "export runs/20260903T121203Z-chat-burst-1f3a --format vllm --out result.json",
    ),
)
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@option("--format", "form", type=click.Choice(list(_NAMES)), default="parquet", show_default=True)
@option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write; default: beside the run's own.")
def export(*, run: Path, form: str, out: Path | None) -> int:
    """Write every event of a run (parquet, csv), or the result file of `vllm bench serve --save-detailed` (vllm).

    Prints the path. Exit code 3 when the run is INVALID.
    """
    from servebench.analysis.digest import examine
    from servebench.analysis.export import vllm_result, write_chunks
    from servebench.shards.manifest import write_atomic

    examined = examine(run)
    path = run / _NAMES[form] if out is None else out
    if not path.parent.is_dir():
        msg = f"{path.parent} is no folder; make it first, or name another file with --out"
        raise InputError(msg)
    if form == "vllm":
        write_atomic(path, vllm_result(examined))
    else:
        rows = write_chunks(examined.run, path, cast('Literal["parquet", "csv"]', form))
        say(f"{rows:,} events")
    click.echo(shown_path(path))
    verdict = examined.digest.manifest.verdict
    return ExitCode.INVALID if verdict is not None and verdict.status == Status.INVALID else ExitCode.OK
