"""What other load generators cost in the load of bench_whole, beside ours, worker and whole tree.

    python -m tests.bench.bench_peers --peer NAME=COMMAND [--peer ...] [--rounds 3] [CASE ...]

COMMAND is run by the shell, with {port}, {conc}, {requests}, {tokens} and {out} (a folder that does not exist yet)
filled in. It must send that many chat requests, `conc` at a time, to http://127.0.0.1:{port}. Its CPU counts with that
of every process it waits for. Nothing of other tools is in this repository; without --peer nothing is measured.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from tests.bench.bench_transport import FLOOR, build, timed
from tests.bench.bench_whole import CASES, TOKENS, Bench, Client, Load, measure
from tests.bench.tree import Usage


def peer(command: str) -> Client:
    """Return the client that a command line is."""

    def run(bench: Bench, load: Load, /, port: int, requests: int) -> Usage:
        out = Path(tempfile.mkdtemp(dir=bench.folder)) / "out"
        line = command.format(port=port, conc=load.users, requests=requests, tokens=TOKENS, out=out)
        return Usage(timed(["sh", "-c", line], bench.folder)[0], {}, None)

    return run


def main() -> None:
    """Measure the cases named with the peers given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *CASES], metavar="CASE")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if not given.peer:
        print("skipped: no peer was given; --peer 'NAME=COMMAND with {port} {conc} {requests} {tokens} {out}'")
        return
    peers = {name: peer(command) for name, _, command in (word.partition("=") for word in given.peer)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = Bench(folder, build(folder), folder / "floor")
        subprocess.run(["gcc", "-O2", "-o", str(bench.floor_c), str(FLOOR / "floor.c")], check=True)
        print(f"load average {os.getloadavg()[0]:.1f}")
        for label in given.names or ("p256", "p512", "u32"):
            measure(bench, label, given.rounds, peers)


if __name__ == "__main__":
    main()
