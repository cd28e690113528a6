"""Know how one variant of a service is put in place for a run and taken away after it."""

import contextlib
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from servebench.cli.processes import Child, Spawn, child_environment, end, start, tail
from servebench.core.errors import HarnessError, InputError
from servebench.core.target import parse_target
from servebench.core.units import NS_PER_S

if TYPE_CHECKING:
    from servebench.workload.experiment import VariantSpec

_GRACE_S = 30.0
_ASK_S = 0.25


@contextlib.contextmanager
def in_place(variant: "VariantSpec", url: str, folder: Path) -> Iterator[None]:
    """Run the hook before, start the server and wait until it answers; end it and run the hook after.

    Logs go to `folder`. Raises InputError with the last words of what failed: the user wrote the command.
    """
    _hook(variant, "before", variant.before, folder)
    server = _started(variant, folder) if variant.command else None
    try:
        if server is not None:
            _await_ready(variant, url, server)
        yield
    finally:
        if server is not None:
            end([server], grace_s=_GRACE_S)
            _end_group(server)
        _hook(variant, "after", variant.after, folder)


def _started(variant: "VariantSpec", folder: Path) -> Child:
    spawn = Spawn(
        name=variant.name,
        command=variant.command or (),
        environment=_environment(variant),
        folder=Path.cwd(),
        log=folder / f"{variant.name}-server.log",
        last_wish=signal.SIGTERM,
    )
    try:
        return start(spawn)
    except HarnessError as error:
        msg = f"variant {variant.name}: {error}"
        raise InputError(msg) from error


def _await_ready(variant: "VariantSpec", url: str, server: Child) -> None:
    target = parse_target(url)
    place = f"{target.scheme}://{target.authority}{variant.ready}"
    limit_s = time.monotonic() + variant.ready_within / NS_PER_S
    while not _answers(place):
        words = "\n".join(f"  {line}" for line in tail(server.log))
        if server.exit_code is not None:
            msg = f"variant {variant.name}: its command ended with exit code {server.exit_code}\n{words}"
            raise InputError(msg)
        if time.monotonic() > limit_s:
            msg = f"variant {variant.name}: {place} did not answer 200 in time\n{words}\n  try: ready and ready_within"
            raise InputError(msg)
        time.sleep(_ASK_S)


def _answers(place: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(place, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _hook(variant: "VariantSpec", when: str, command: tuple[str, ...] | None, folder: Path) -> None:
    if command is None:
        return
    log = folder / f"{variant.name}-{when}.log"
    with log.open("ab") as output:
        try:
            done = subprocess.run(  # noqa: S603 - the user's own program, no shell reads it
                list(command),
                env=_environment(variant),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
        except OSError as error:
            msg = f"variant {variant.name}: cannot run `{when}`: {error.strerror or error}"
            raise InputError(msg) from error
    if done.returncode:
        words = "\n".join(f"  {line}" for line in tail(log))
        msg = f"variant {variant.name}: `{when}` ended with exit code {done.returncode}\n{words}"
        raise InputError(msg)


def _environment(variant: "VariantSpec") -> dict[str, str]:
    """Return the user's environment without what steers this tool, keys among it: a server needs none of ours."""
    return child_environment(os.environ, drop_prefixes=("SERVEBENCH_", "LOCUST_"), extra=variant.environment)


def _end_group(server: Child) -> None:
    """End what the server started and left behind in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGKILL)
