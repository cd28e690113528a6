"""Know the command `schema`."""

import json

import click

from servebench.cli.base import command, option


@command(
    "schema",
    "Print the JSON Schema of workload files, for editors.",
    examples=("schema > workload.schema.json", "schema --summary"),
)
@option("--summary", is_flag=True, help="That of summary.json instead, for programs that read it.")
def schema(*, summary: bool) -> None:
    """Print the JSON Schema of workload files on stdout.

    In an editor with the YAML language server, begin a file with
    "# yaml-language-server: $schema=workload.schema.json".
    """
    if summary:
        from servebench.analysis.summary_schema import summary_json_schema

        click.echo(json.dumps(summary_json_schema(), indent=2))
        return
    from servebench.workload.schema import workload_json_schema

    click.echo(json.dumps(workload_json_schema(), indent=2))
