"""Know the command that shows where the time of answers of several steps went."""

from pathlib import Path

import click

from servebench.cli.base import command, option, say


@command(
    "spans",
    "Show where the time of answers of several steps went.",
    examples=("spans runs/rag", "spans runs/rag --html rag.html"),
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@option("--format", "form", type=click.Choice(["text", "csv", "json"]), default="text", help="Form of the numbers.")
@option("--html", type=click.Path(path_type=Path), help="Draw the breakdown into this file.")
def spans(*, folder: Path, form: str, html: Path | None) -> int:
    """Show where the time went of answers that a locustfile of your own times with `servebench.loadgen.spans`.

    Each moment belongs to the innermost step that is going on, so the means of the steps add up to that of the answer.
    """
    import msgspec

    from servebench.analysis.render import csv_text
    from servebench.analysis.spans import breakdowns
    from servebench.analysis.spans_page import as_text, drawing, records

    found = breakdowns(folder)
    if form == "text":
        click.echo(as_text(found), nl=False)
    elif form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(records(found)), indent=2).decode())
    else:
        rows = records(found)
        click.echo(csv_text(list(rows[0]), rows), nl=False)
    if html is not None:
        html.write_text(drawing(found), encoding="utf-8")
        say(f"drawn in {html}")
    return 0
