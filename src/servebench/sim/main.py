"""Know how the simulator is started and stopped: options in, a listening process out."""

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from servebench.core.errors import InputError, ServebenchError
from servebench.sim.connection import Connection
from servebench.sim.faults import FaultRule, parse_fault
from servebench.sim.lengths import AnswerRule
from servebench.sim.parameters import PRESETS, engine_parameters
from servebench.sim.server import SimConfig, Simulator

API_KEY_VARIABLE = "SERVEBENCH_SIM_API_KEY"

_BACKLOG = 4_096
_FLUSH_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """How to run one simulator.

    `port` 0 = a free one, told on stdout and in `port_file`. `changes` replaces single engine parameters, as text.
    `api_key` None = no key is asked for; it comes from the environment, never from an option.
    """

    host: str = "127.0.0.1"
    port: int = 0
    port_file: Path | None = None
    preset: str = "demo"
    changes: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    model: str = "sim-1"
    answer_rule: AnswerRule = "exact"
    faults: tuple[FaultRule, ...] = ()
    truth_log: Path | None = None
    api_key: str | None = field(default=None, repr=False)


def run_sim(options: SimOptions) -> None:
    """Serve until SIGTERM or SIGINT; the truth log is complete when this returns.

    The first line on stdout is `listening http://HOST:PORT`. Raises SpecError for bad options, InputError for an
    address or a file that cannot be used.
    """
    config = SimConfig(
        parameters=engine_parameters(options.preset, options.changes),
        seed=options.seed,
        model=options.model,
        answer_rule=options.answer_rule,
        faults=options.faults,
        api_key=options.api_key,
        truth_log=options.truth_log,
    )
    _allow_many_sockets()
    asyncio.run(_serve(config, options))


async def _serve(config: SimConfig, options: SimOptions) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # `servebench sim` blocks them before it becomes this process.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        simulator = Simulator(config)
    except OSError as error:
        raise InputError(
            f"--truth-log {options.truth_log}: {error.strerror}; name a file that can be written"
        ) from error
    connections: set[Connection] = set()
    try:
        server = await loop.create_server(
            lambda: Connection(simulator.handle, connections), options.host, options.port, backlog=_BACKLOG
        )
    except OSError as error:
        place = f"{options.host}:{options.port}"
        raise InputError(f"cannot listen on {place}: {error.strerror}; --port 0 takes a free one") from error
    _announce(options, server.sockets[0].getsockname()[1])
    # What exists now lives for ever; collections need not walk it again.
    gc.freeze()
    tasks = [loop.create_task(simulator.runner.run()), loop.create_task(_flush_often(simulator))]
    stopping = loop.create_task(stop.wait())
    await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    server.close()
    simulator.close()
    for connection in list(connections):
        connection.close()
    for task in (stopping, *tasks):
        if task.done():
            task.result()
        task.cancel()


async def _flush_often(simulator: Simulator) -> None:
    while True:
        await asyncio.sleep(_FLUSH_S)
        simulator.flush()


def _announce(options: SimOptions, port: int) -> None:
    host = f"[{options.host}]" if ":" in options.host else options.host
    if options.port_file is not None:
        # Renamed into place, so that a reader never sees half a number.
        partial = options.port_file.with_suffix(".tmp")
        partial.write_text(f"{port}\n")
        partial.replace(options.port_file)
    sys.stdout.write(f"listening http://{host}:{port}\n")
    sys.stdout.flush()


def _allow_many_sockets() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _split_changes(items: tuple[str, ...]) -> dict[str, str]:
    changes = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"--set {item}: must be NAME=VALUE, e.g. --set max_num_seqs=8")
        changes[name] = value
    return changes


@click.command(help="Simulated OpenAI-compatible engine with continuous batching.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, help="0 = a free port.")
@click.option("--port-file", type=click.Path(path_type=Path), help="Write the port number here.")
@click.option("--preset", default="demo", show_default=True, help=f"Engine: {', '.join(PRESETS)}.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Replace one engine parameter.")
@click.option("--seed", default=0, show_default=True, help="Seed of jitter, natural lengths and faults.")
@click.option("--model", default="sim-1", show_default=True, help="Name of the served model.")
@click.option(
    "--answer-tokens",
    "answer_rule",
    type=click.Choice(["exact", "natural"]),
    default="exact",
    show_default=True,
    help="exact: max_tokens when given; natural: the smaller of max_tokens and a drawn length.",
)
@click.option("--fault", "faults", multiple=True, metavar="KIND:SHARE", help="Spoil a share of the requests.")
@click.option("--truth-log", type=click.Path(path_type=Path), help="Write what was sent and when (JSON lines).")
def main(changes: tuple[str, ...], faults: tuple[str, ...], **options: object) -> None:
    """Run the simulator as a process of its own."""
    try:
        run_sim(
            SimOptions(
                changes=_split_changes(changes),
                faults=tuple(parse_fault(fault) for fault in faults),
                api_key=os.environ.get(API_KEY_VARIABLE),
                **options,  # type: ignore[arg-type]  # click has checked each against its option
            )
        )
    except ServebenchError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)
