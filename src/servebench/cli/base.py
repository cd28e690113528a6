"""Know how commands and options are declared: examples first, options in groups, Locust's flags let through."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from servebench.cli.locust_flags import LOCUST_FLAGS, LocustFlag, argument_of
from servebench.cli.terminal import columns_of, fitted
from servebench.core.units import parse_duration_ns

F = TypeVar("F", bound=Callable[..., Any])

DEBUG_KEY = "servebench.debug"
COLOR_KEY = "servebench.color"
COLOR_WISHES = ("always", "never", "auto")
LOCUST_KEY = "servebench.locust_flags"
GENERAL = "General"
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Option(click.Option):
    """An option that names the group of the help text that it stands in."""

    def __init__(self, *args: Any, group: str = GENERAL, **kwargs: Any) -> None:  # noqa: ANN401 - click's signature
        super().__init__(*args, **kwargs)
        self.group = group


class Duration(click.ParamType[int]):
    """A duration with its unit, such as 30s; converts to int64 nanoseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return nanoseconds; ends the command with the way out when the unit is missing."""
        if isinstance(value, int):
            return value
        try:
            return parse_duration_ns(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Command(click.Command):
    """A command whose help opens with examples that run as printed."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's signature
        examples: Sequence[str] = (),
        locust: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)
        self.takes_locust_flags = locust
        self.params += [_color_option(), _debug_option()]
        if locust:
            taken = {name for param in self.params for name in param.opts}
            self.params += [_passing(flag) for flag in LOCUST_FLAGS if not taken & set(flag.names)]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, usage, what the command does, and its options by group."""
        for example in self.examples:
            formatter.write(f"  {example}\n")
        formatter.write_paragraph()
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)
        self.format_epilog(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per option group, in the order in which groups first appear; General last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                groups.setdefault(getattr(param, "group", GENERAL), []).append(record)
        general = groups.pop(GENERAL, [])
        for name, records in [*groups.items(), (GENERAL, general)]:
            with formatter.section(name):
                formatter.write_dl(records)
        if self.takes_locust_flags:
            formatter.write_paragraph()
            formatter.write_text("Locust's own flags (--web-login, --csv, --loglevel, …) pass through.")


def command(
    name: str, short: str, *, examples: Sequence[str], locust: bool = False
) -> Callable[[Callable[..., Any]], Command]:
    """Return a decorator that makes a function a command of this module's form."""
    return click.command(
        name,
        cls=Command,
        examples=tuple(f"servebench {example}" for example in examples),
        locust=locust,
        short_help=short,
        context_settings=CONTEXT_SETTINGS,
    )


def option(*names: str, group: str = GENERAL, **settings: Any) -> Callable[[F], F]:  # noqa: ANN401 - click's settings
    """Return a decorator that adds one option to a command."""
    return click.option(*names, cls=Option, group=group, **settings)


def passed_locust_flags(ctx: click.Context) -> tuple[str, ...]:
    """Return the Locust arguments of this command line, in the order given, paths made absolute."""
    return tuple(ctx.meta.get(LOCUST_KEY, ()))


def say(text: str = "") -> None:
    """Write words for the person at the terminal: stderr, so that stdout holds results only."""
    click.echo(fitted(text, columns_of(sys.stderr)), err=True, color=coloured())


def show(text: str) -> None:
    """Write results for a person on stdout; on a terminal its lines fit."""
    click.echo(fitted(text, columns_of(sys.stdout)))


def coloured(wish: str | None = None) -> bool:
    """Say whether stderr gets colours; `wish` None = what --color of this command line says.

    auto: on a terminal that can, unless NO_COLOR is set to anything.
    """
    context = click.get_current_context(silent=True)
    told = wish or (context.meta.get(COLOR_KEY) if context is not None else None) or "auto"
    if told != "auto":
        return bool(told == "always")
    can = sys.stderr.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}
    return can and not os.environ.get("NO_COLOR")


def _color_option() -> Option:
    def remember(ctx: click.Context, _param: click.Parameter, value: str) -> None:
        ctx.meta[COLOR_KEY] = value

    return Option(
        ["--color"],
        type=click.Choice(COLOR_WISHES),
        default="auto",
        expose_value=False,
        callback=remember,
        is_eager=True,
        help="Colours on stderr; auto minds NO_COLOR.",
    )


def _debug_option() -> Option:
    def remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        ctx.meta[DEBUG_KEY] = value or ctx.meta.get(DEBUG_KEY, False)

    return Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=remember,
        is_eager=True,
        help="Show tracebacks of errors.",
    )


def _passing(flag: LocustFlag) -> Option:
    def collect(ctx: click.Context, _param: click.Parameter, value: str | bool | None) -> None:
        if value is not None and value is not False:
            ctx.meta.setdefault(LOCUST_KEY, []).extend(argument_of(flag, value))

    names = list(flag.names)
    settings: dict[str, Any] = {"hidden": True, "expose_value": False, "callback": collect}
    return Option(names, is_flag=True, **settings) if flag.kind == "flag" else Option(names, type=str, **settings)
