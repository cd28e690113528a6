"""Know the command `sim`, and how the simulated engine is started as a process of its own."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import click

from servebench.cli.base import CONTEXT_SETTINGS, Command
from servebench.cli.processes import Child, Spawn, child_environment, end, start, tail
from servebench.core.errors import HarnessError

READY_S = 20.0
"""An engine that does not listen by then never will."""
_HELLO = "listening "
_ARGUMENTS = "servebench.sim_arguments"


class _SimCommand(Command):
    """Takes the simulator's own options, loaded when the command is used, and hands the arguments on as they are."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from servebench.sim.main import main as simulator

        return [*simulator.params, *super().get_params(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = _without_ours(args)
        return super().parse_args(ctx, args)


def _without_ours(arguments: list[str]) -> list[str]:
    """Return the arguments without the options of every command, of which the simulator knows nothing."""
    kept, given = [], iter(arguments)
    for argument in given:
        if argument == "--color":
            next(given, None)
        elif argument != "--debug" and not argument.startswith("--color="):
            kept.append(argument)
    return kept


def _become_simulator(**_options: object) -> NoReturn:
    arguments = click.get_current_context().meta[_ARGUMENTS]
    # In place of this process, so that signals and exit code are the simulator's own.
    # A stop waits until the simulator listens: Python would answer it by a traceback, from whatever it just loads.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    os.execv(sys.executable, [sys.executable, "-m", "servebench.sim", *arguments])  # noqa: S606 - no shell wanted


sim = _SimCommand(
    "sim",
    callback=_become_simulator,
    examples=("servebench sim --port 8100", "servebench sim --port 8100 --model tiny --fault http-503:0.01"),
    short_help="Serve a simulated engine.",
    help="Serve a simulated engine: OpenAI-compatible streams, continuous batching, prefix cache, metrics.\n\n"
    'It prints "listening http://HOST:PORT" when it is ready and ends at Ctrl-C.',
    context_settings=CONTEXT_SETTINGS,
)


def start_sim(scratch: Path, *, seed: int) -> tuple[Child, str]:
    """Start the demo's engine on a free port; return it with its address once it listens.

    Raises HarnessError with its last words when it does not listen within 20 s.
    """
    folder = scratch / "sim"
    folder.mkdir()
    # Keys of the user's own services are no business of a simulator, and one set for another simulator would lock it.
    environment = child_environment(os.environ, drop_prefixes=("SERVEBENCH_", "LOCUST_"), extra={})
    child = start(
        Spawn(
            name="simulated engine",
            command=[sys.executable, "-m", "servebench.sim", "--port", "0", "--preset", "demo", "--seed", str(seed)],
            environment=environment,
            folder=folder,
            log=scratch / "log" / "sim.log",
            last_wish=signal.SIGTERM,
        )
    )
    try:
        return child, _address(child)
    except BaseException:
        end([child])
        raise


def _address(child: Child) -> str:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        ended = child.exit_code is not None
        for line in tail(child.log, lines=50):
            if line.startswith(_HELLO):
                return line.removeprefix(_HELLO)
        if ended:
            break
        time.sleep(0.02)
    msg = "\n".join(["the simulated engine did not start", *(f"  {text}" for text in tail(child.log))])
    raise HarnessError(msg)
