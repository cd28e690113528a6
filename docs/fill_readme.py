"""Know which blocks of README.md are generated, and fill them from a run of `servebench demo`.

    python docs/fill_readme.py runs/<run of the demo> [--cost FILE]

The blocks stand between `<!-- BEGIN generated: NAME` and `<!-- END generated: NAME`. `--cost` is a file with the table
that `python -m tests.bench.summary` makes of what `make bench` printed.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def servebench(*arguments: str) -> str:
    """Return what a servebench command prints on stdout."""
    command = [sys.executable, "-m", "servebench.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603 - our own command
    if not done.stdout:
        sys.exit(done.stderr)
    return done.stdout


def fenced(text: str, language: str = "") -> str:
    """Return a fenced block."""
    return f"```{language}\n{text.strip()}\n```"


def curve(run: Path) -> str:
    """Return the columns of the curve that README shows."""
    lines = [line.split(",") for line in (run / "tables" / "curve.csv").read_text(encoding="utf-8").splitlines()]
    names = lines[0]
    wanted = [
        name
        for name in names
        if name in {"phase", "step", "offered_per_s", "achieved_per_s", "in_flight_mean", "ttft_p50_ms", "e2e_p50_ms"}
    ]
    rows = [[line[names.index(name)] for name in wanted] for line in lines]
    widths = [max(len(shorten(row[column])) for row in rows) for column in range(len(wanted))]
    return "\n".join(
        "  ".join(shorten(cell).rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def shorten(cell: str) -> str:
    """Return a number with three significant digits; words as they are."""
    return f"{float(cell):.3g}" if re.fullmatch(r"-?\d+\.\d+(e-?\d+)?", cell) else cell


def fill(text: str, name: str, content: str) -> str:
    """Return the text with one block replaced."""
    pattern = re.compile(rf"(<!-- BEGIN generated: {name}\b[^\n]*-->\n).*?(<!-- END generated: {name} -->)", re.DOTALL)
    filled, count = pattern.subn(lambda found: f"{found[1]}{content}\n{found[2]}", text)
    if count != 1:
        sys.exit(f"README.md has {count} blocks {name}")
    return filled


def main() -> None:
    """Fill the blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--cost", type=Path)
    given = parser.parse_args()
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    text = fill(text, "workload", fenced((ROOT / "workloads" / "demo.yaml").read_text(encoding="utf-8"), "yaml"))
    text = fill(text, "plan", fenced(servebench("plan", "builtin:demo")))
    text = fill(text, "run", fenced(servebench("merge", str(given.run))))
    text = fill(text, "curve", fenced(curve(given.run)))
    if given.cost is not None:
        text = fill(text, "cost", given.cost.read_text(encoding="utf-8").strip())
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
