"""Know the command `sim`, and how the simulated engine is started as a process of its own."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from servebench.cli.base import command, option
from servebench.cli.processes import Child, Spawn, child_environment, end, start, tail
from servebench.core.errors import HarnessError

READY_S = 20.0
"""An engine that does not listen by then never will."""
_HELLO = "listening "


@command("sim", examples=("sim", "sim --port 8100 --model tiny --seed 7"))
@option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free port.")
@option("--model", default="sim-1", show_default=True, help="Name of the model that it serves.")
@option("--preset", default="demo", show_default=True, help="Size of the engine: demo or fast.")
@option("--seed", type=int, default=0, show_default=True, help="Seed of answer lengths and jitter.")
@option("--truth-log", type=click.Path(path_type=Path, dir_okay=False), help="Write when each chunk was really sent.")
@option("--fault", multiple=True, metavar="KIND:SHARE", help="Make a share of the answers fail, e.g. http-503:0.01.")
def sim(
    *, host: str, port: int, model: str, preset: str, seed: int, truth_log: Path | None, fault: Sequence[str]
) -> int:
    """Serve a simulated engine: OpenAI-compatible streams, continuous batching, prefix cache, metrics.

    It prints "listening http://HOST:PORT" when it is ready and ends at Ctrl-C.
    """
    arguments = ["--host", host, "--port", str(port), "--model", model, "--preset", preset, "--seed", str(seed)]
    if truth_log is not None:
        arguments += ["--truth-log", str(truth_log)]
    for one in fault:
        arguments += ["--fault", one]
    # In place of this process, so that signals and exit code are the simulator's own.
    os.execv(sys.executable, [sys.executable, "-m", "servebench.sim", *arguments])  # noqa: S606 - no shell wanted


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
