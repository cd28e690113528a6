"""The servebench command as a user runs it, in a process of its own."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment with the package on its path and no setting of another run."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), **more}


def command(*arguments: str) -> list[str]:
    """Return the command line of a servebench command."""
    return [sys.executable, "-m", "servebench.cli", *arguments]


def servebench(
    folder: Path | None, *arguments: str, timeout_s: float = 150, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder to its end, with `more` in its environment; return exit code, stdout and stderr."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
    )


def free_port() -> int:
    """Return a port of the loopback that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
