"""Know the command `schema`."""

import json

import click

from servebench.cli.base import command


@command(
    "schema",
    "Print the JSON Schema of workload files, for editors.",
    examples=("schema > workload.schema.json", "schema"),
)
def schema() -> None:
    """Print the JSON Schema of workload files on stdout.

    In an editor with the YAML language server, begin a file with
    "# yaml-language-server: $schema=workload.schema.json".
    """
    from servebench.workload.schema import workload_json_schema

    click.echo(json.dumps(workload_json_schema(), indent=2))
