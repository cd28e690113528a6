"""Know the command `compare`, which says whether the one change helped without losing quality."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from servebench.cli.base import command, option, say, show
from servebench.cli.finish import shown_path
from servebench.core.errors import InputError
from servebench.core.outcomes import ExitCode, Status

if TYPE_CHECKING:
    from servebench.analysis.compare.result import Asked, Comparison
    from servebench.analysis.compare.sides import Pairing


@command(
    "compare",
    "Say whether a change made the service better.",
    examples=(
        "compare runs/base-1,runs/base-2,runs/base-3 runs/new-1,runs/new-2,runs/new-3",
        'compare experiments/base experiments/new --require "ttft.p95<-10%" --format md',
    ),
)
@click.argument("base")
@click.argument("candidate")
@option("--primary", default="ttft.p95", show_default=True, metavar="METRIC", help="The number that decides.")
@option("--margin", default=5.0, show_default=True, metavar="PERCENT", help="Changes below this do not matter.")
@option("--require", multiple=True, metavar="BOUNDARY", help='Acceptance, such as "ttft.p95<-10%". May be repeated.')
@option("--change", metavar="NAME", help="The condition that was meant to differ; default: the only one that does.")
@option(
    "--allow", multiple=True, metavar="NAME", help="Mark this condition where it differs, and compare all the same."
)
@option("--strict", is_flag=True, help="Exit 1 also when a boundary is undecided.")
@option("--report", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with plots there too.")
@option("--format", "form", type=click.Choice(["text", "md", "json"]), default="text", show_default=True)
def compare(
    *,
    base: str,
    candidate: str,
    primary: str,
    margin: float,
    require: tuple[str, ...],
    change: str | None,
    allow: tuple[str, ...],
    strict: bool,
    page: Path | None,
    form: str,
) -> int:
    """Compare two sides. A side is a run, several with commas between, or a folder of runs; equal seeds make pairs.

    Three pairs are the least for an interval. Refused (exit 2) where more than one condition differs. Exit code 1 when
    a boundary is broken; error rate and acceptance must not get worse by more than 1 point unless required otherwise.
    """
    from servebench.analysis.compare import result

    if page is not None and not page.absolute().parent.is_dir():
        msg = f"{page.parent} is no folder; make it first, or name another file with --report"
        raise InputError(msg)
    if not margin > 0:
        msg = f"--margin {margin:g} is not above 0"
        raise InputError(msg)
    asked = result.Asked(
        primary=result.parse_wanted(primary),
        margin=margin / 100,
        boundaries=tuple(map(result.parse_boundary, require)),
        allowed=allow,
        change=change,
    )
    text, code = judged(base, candidate, asked, form=form, strict=strict, page=page)
    if form == "text" and text:
        show(text.removesuffix("\n"))
    else:
        click.echo(text, nl=False)
    return code


def judged(
    base: str, candidate: str, asked: "Asked", *, form: str = "text", strict: bool = False, page: Path | None = None
) -> tuple[str, int]:
    """Return what a comparison of two sides says, and its exit code; `page`: where to write it with plots too.

    Raises InputError where no runs make a pair.
    """
    from servebench.analysis.compare import result, sides, words

    pairing = sides.pair_up(sides.read_side(base), sides.read_side(candidate))
    if not pairing.pairs:
        msg = "no run of one side has the seed of a run of the other, so none make a pair; run both with equal seeds"
        raise InputError(msg)
    if (invalid := _invalid(pairing)) is not None:
        return "", invalid
    found = result.compare(pairing, asked)
    text = {"text": words.as_text, "md": words.as_markdown, "json": words.as_json}[form](found)
    if page is not None:
        _write_page(page, found)
    if found.judgement.refused:
        return text, ExitCode.BAD_INPUT
    missed = found.acceptance == "REJECTED" or (strict and found.acceptance == "UNDECIDED")
    return text, ExitCode.MISSED if missed else ExitCode.OK


def _write_page(path: Path, found: "Comparison") -> None:
    from servebench.analysis.report import comparison_page, write_page

    write_page(path, *comparison_page(found))
    say(f"page: {shown_path(path)}")


def _invalid(pairing: "Pairing") -> int | None:
    """Return the exit code for runs whose numbers must not be used, after naming them; None when all may be."""
    runs = [run for pair in pairing.pairs for run in pair]
    bad = [run for run in runs if run.status == Status.INVALID]
    for run in bad:
        reasons = run.manifest.verdict.reasons if run.manifest.verdict else []
        say(f"! not compared: {run.folder} is INVALID: {'; '.join(reasons)}")
    return ExitCode.INVALID if bad else None
