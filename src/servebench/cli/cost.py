"""Know the command `cost`: what the answers of a finished run cost, in money and energy."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servebench.cli.base import command, option, show
from servebench.cli.results import verdict_code

if TYPE_CHECKING:
    from servebench.analysis.cost import Bill

_PRICE = click.FloatRange(0)


@command(
    "cost",
    "Say what the answers of a run cost.",
    examples=(
        "cost runs/20260903T121203Z-chat-burst-1f3a --input-price 0.15 --output-price 0.60",
        "cost runs/20260903T121203Z-chat-burst-1f3a --hour-price 4.10 --power-watts 640",
    ),
)
@click.argument("run", type=click.Path(path_type=Path, file_okay=False))
@option("--input-price", group="By token", type=_PRICE, help="Per million input tokens.")
@option("--cached-price", group="By token", type=_PRICE, help="Per million found in a cache; default: as input.")
@option("--output-price", group="By token", type=_PRICE, help="Per million output tokens.")
@option("--request-price", group="By token", type=_PRICE, help="Per request, whatever became of it.")
@option("--hour-price", group="By hardware", type=_PRICE, help="Of all hardware together, per hour, idle or not.")
@option("--kwh-price", group="By hardware", type=_PRICE, help="Of electricity, where the hour does not hold it.")
@option("--power-watts", group="By hardware", type=_PRICE, help="In place of the power that was read during the run.")
@option("--currency", default="USD", show_default=True, metavar="NAME", help="Only a word.")
@option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def cost(
    *,
    run: Path,
    input_price: float | None,
    cached_price: float | None,
    output_price: float | None,
    request_price: float | None,
    hour_price: float | None,
    kwh_price: float | None,
    power_watts: float | None,
    currency: str,
    as_json: bool,
) -> int:
    """Share what a run's measured time cost among its answers: all, accepted and good ones, and a million good tokens.

    Failed requests and idle time are paid for by the answers that came. What is not known is named, never 0.
    Exit code 3 when the run is INVALID.
    """
    from servebench.analysis.cost import Prices, bill, used
    from servebench.analysis.digest import examine
    from servebench.analysis.pool import helpers

    prices = Prices(
        currency=currency,
        input_tokens=input_price,
        cached_tokens=cached_price,
        output_tokens=output_price,
        request=request_price,
        hour=hour_price,
        kwh=kwh_price,
        power_w=power_watts,
    )
    with helpers(run) as executor:
        examined = examine(run, executor)
        found = bill(used(examined.run, examined.digest.server.telemetry), prices)
    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
    else:
        show("\n".join(_lines(found)))
    return verdict_code(examined)


def _lines(found: "Bill") -> list[str]:
    from servebench.analysis.numbers import UNDEFINED, significant

    shown = [f"  {'':<42} {'':>12}"]
    for line in found.lines:
        why = f"  ({line.missing})" if line.value is None and line.missing else ""
        value = UNDEFINED if line.value is None else significant(line.value)
        shown.append(f"  {line.name:<42} {value:>12} {line.unit}{why}".rstrip())
    return [*shown[1:], *(f"  ! {note}" for note in found.notes)]
