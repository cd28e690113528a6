"""Know the command `export`, which writes a run in the forms of others."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click

from servebench.cli.base import command, option, say
from servebench.cli.finish import shown_path
from servebench.cli.results import verdict_code
from servebench.core.errors import InputError

if TYPE_CHECKING:
    from servebench.analysis.digest import Examined

_NAMES = {
    "parquet": "chunks.parquet",
    "csv": "chunks.csv",
    "vllm": "vllm-result.json",
    "llm-d": "llm-d",
    "genai-bench": "genai-bench",
}
_FOLDERS = frozenset({"llm-d", "genai-bench"})


@command(
    "export",
    "Write a run as one row per event, or as other tools do.",
    examples=(
        "export runs/20260903T121203Z-chat-burst-1f3a --format parquet",
        "export runs/20260903T121203Z-chat-burst-1f3a --format llm-d --out reports",
    ),
)
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@option("--format", "form", type=click.Choice(list(_NAMES)), default="parquet", show_default=True)
@option("--out", type=click.Path(path_type=Path), help="File or folder to write; default: beside the run's own.")
def export(*, run: Path, form: str, out: Path | None) -> int:
    """Write every event of a run (parquet, csv), or what another tool writes, for the readers and plots made for it.

    vllm: the result file of `vllm bench serve --save-detailed`. llm-d: a folder with a benchmark report (schema 0.2)
    per load level. genai-bench: an experiment folder with a file per load level. Prints the path. Exit code 3 when the
    run is INVALID.
    """
    from servebench.analysis.digest import examine

    path = run / _NAMES[form] if out is None else out
    if not path.absolute().parent.is_dir():
        msg = f"{path.parent} is no folder; make it first, or name another place with --out"
        raise InputError(msg)
    if path.exists() and path.is_dir() is not (form in _FOLDERS):
        kind = "a folder" if form in _FOLDERS else "a file"
        msg = f"{path} is there already and not {kind}, as {form} needs; name another place with --out"
        raise InputError(msg)
    examined = examine(run)
    if form in _FOLDERS:
        _write_folder(examined, form, path)
    else:
        _write_file(examined, form, path)
    click.echo(shown_path(path))
    return verdict_code(examined)


def _write_file(examined: "Examined", form: str, path: Path) -> None:
    from servebench.analysis.exports.events import write_chunks
    from servebench.analysis.exports.vllm import vllm_result
    from servebench.shards.manifest import write_atomic

    if form == "vllm":
        write_atomic(path, vllm_result(examined))
    else:
        rows = write_chunks(examined.run, path, cast('Literal["parquet", "csv"]', form))
        say(f"{rows:,} events")


def _write_folder(examined: "Examined", form: str, folder: Path) -> None:
    from servebench.analysis.exports.genai import genai_experiment
    from servebench.analysis.exports.llmd import llmd_reports
    from servebench.shards.manifest import write_atomic

    files = llmd_reports(examined) if form == "llm-d" else genai_experiment(examined)
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        write_atomic(folder / name, content)
    say(f"{len(files):,} files")
