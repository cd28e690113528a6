"""Print what the transport costs and how right it is in every kind of load, beside the least that Python can do.

    python -m tests.bench.bench_cases [--rounds 3] [NAME ...]

A case is a row of CASES: p = 20 ms per token, streams independent; s = the same, in step, as an engine's batch; u = as
fast as sockets take it; the number says how many streams, all of which start at once. `stalls` holds up the client's
loop for 15 ms at random, `fast` streams 40,000 tokens a second, `open` keeps 5,000 streams open. Columns and the floor
are those of bench_transport. The last line of a case is the ratio of medians.
"""

import argparse
import tempfile
from pathlib import Path

from tests.bench.bench_transport import Case, build, measure

CASES = {
    "p64": Case(64, 256),
    "p256": Case(256, 256),
    "p512": Case(512, 256),
    "s256": Case(256, 256, step=True),
    "s512": Case(512, 256, step=True),
    "u32": Case(32, 4096, itl_ms=0),
    "u256": Case(256, 512, itl_ms=0),
    "stalls": Case(256, 256, stalls=True),
    "fast": Case(800, 256, hub_lag=True),
    "open": Case(5000, 8, itl_ms=1000),
}


def main() -> None:
    """Measure the cases named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *CASES], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        build(Path(name))
        for label in given.names or CASES:
            ratio = measure(CASES[label], given.rounds, Path(name), label)
            print(f"{label}: {ratio:.2f} x the floor", flush=True)


if __name__ == "__main__":
    main()
