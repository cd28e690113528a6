"""Know the list of commands, and how every error becomes one message and an exit code."""

import contextlib
import difflib
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import NoReturn

import click

from servebench import __version__
from servebench.cli.base import COLOR_WISHES, CONTEXT_SETTINGS, DEBUG_KEY, coloured, say
from servebench.cli.encoding import fit_streams
from servebench.cli.terminal import columns_of, fitted
from servebench.core.errors import ServebenchError
from servebench.core.outcomes import ExitCode

COMMANDS: dict[str, str] = {
    "demo": "servebench.cli.demo:demo",
    "check": "servebench.cli.check:check",
    "run": "servebench.cli.run:run",
    "ui": "servebench.cli.ui:ui",
    "capacity": "servebench.cli.capacity:capacity",
    "plan": "servebench.cli.plan:plan",
    "table": "servebench.cli.results:table",
    "report": "servebench.cli.results:report",
    "compare": "servebench.cli.compare:compare",
    "experiment": "servebench.cli.experiment:experiment",
    "cost": "servebench.cli.cost:cost",
    "merge": "servebench.cli.results:merge",
    "export": "servebench.cli.export:export",
    "spans": "servebench.cli.spans:spans",
    "sim": "servebench.cli.simulate:sim",
    "master": "servebench.cli.nodes:master",
    "worker": "servebench.cli.nodes:worker",
    "schema": "servebench.cli.schema:schema",
}
"""Command to where it lives; a module is loaded when its command is used or listed."""


class Commands(click.Group):
    """The commands of COMMANDS, in that order, loaded when needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the journeys."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, None when there is none of that name."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        found: click.Command = getattr(importlib.import_module(module), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command to run; a misspelt name ends in a suggestion."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]}?" if close else f" There are: {', '.join(COMMANDS)}."
            msg = f"no such command {args[0]}.{hint}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings=CONTEXT_SETTINGS,
)
@click.version_option(__version__, prog_name="servebench", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> int:
    """Load a language-model service, time every token, and say what it can do.

    Start with: servebench demo
    """
    ctx.meta[DEBUG_KEY] = debug
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())
        say("\nstart with: servebench demo")
        ctx.exit(ExitCode.BAD_INPUT)
    return ExitCode.OK


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run one command line (default: the process's own) and exit with its code."""
    arguments = list(sys.argv[1:] if args is None else args)
    fit_streams()
    try:
        code = _outcome(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output (such as `| head`) has had enough; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    sys.exit(code)


def _outcome(arguments: list[str]) -> int:
    fail = partial(_fail, bold=coloured(_color_asked(arguments)))
    try:
        code = cli.main(args=arguments, prog_name="servebench", standalone_mode=False)
    except click.UsageError as error:
        return fail(_usage(error), ExitCode.BAD_INPUT)
    except click.ClickException as error:
        return fail(error.format_message(), ExitCode.BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return fail("interrupted", ExitCode.INTERRUPTED)
    except ServebenchError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        return fail(str(error), error.exit_code)
    except BrokenPipeError:
        raise
    except SystemExit as error:
        # click ends the process itself, with 1, where nobody reads the output any more: that is our code for a miss.
        raise BrokenPipeError from error
    except Exception as error:  # noqa: BLE001 - the top of the process: what arrives here is our own fault
        return fail(_bug(error, shown="--debug" in arguments), ExitCode.HARNESS)
    return int(code) if isinstance(code, int) else ExitCode.OK


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip()
    if isinstance(error, click.NoSuchOption):
        close = error.possibilities or []
        message = f"no such option {error.option_name}." + (f" Did you mean {close[0]}?" if close else "")
    path = error.ctx.command_path if error.ctx else "servebench"
    return f"{message[:1].lower()}{message[1:]}\n  try: {path} --help"


def _fail(message: str, code: int, *, bold: bool) -> int:
    plain = fitted(f"error: {click.unstyle(message)}", columns_of(sys.stderr))
    if bold:
        plain = click.style("error:", fg="red", bold=True) + plain.removeprefix("error:")
    click.echo(plain, err=True, color=bold)
    return code


def _color_asked(arguments: Sequence[str]) -> str | None:
    """Return what --color says; read off the command line, because the context is gone where an error arrives."""
    for name, following in pairwise([*arguments, ""]):
        told = following if name == "--color" else name.removeprefix("--color=")
        if name.startswith("--color") and told in COLOR_WISHES:
            return told
    return None


def _bug(error: Exception, *, shown: bool) -> str:
    text = "".join(traceback.format_exception(error))
    if shown:
        say(text)
        return f"servebench failed: {error!r}"
    where = ""
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="servebench-", suffix=".log", delete=False
        ) as log:
            log.write(text)
        where = f"; the traceback is in {log.name}"
    return f"servebench failed: {type(error).__name__}: {error}{where}"
