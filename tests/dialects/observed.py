"""Write what the tools last printed beside our dialects of the same load: python -m tests.dialects.observed PATH."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.dialects.tools import PEERS, REQUESTS, STREAMS

from servebench.analysis.numbers import significant
from servebench.metrics.dialects import DIALECT_BY_NAME

_HEAD = f"""# What other tools printed, beside our dialects of them

Written by `make test-dialects` from its last run: {REQUESTS} requests in {STREAMS} streams, by each tool and by
servebench, against a server whose events leave at fixed times (`tests/dialects/paced.py`): an event without text after
40 ms, the first token after 240 to 280 ms, 15 further tokens every 20 ms, then the finish reason, usage and [DONE],
each 60 ms after the one before. So each formula gives a number of its own: it shows which events a tool's clock starts
and stops at.

What a formula cannot undo is a busy client: between sending and the server's seeing it, a tool may lose tens of
milliseconds on a loaded machine, which stand in its TTFT and end-to-end latency once, and not in TPOT or the gaps. The
test allows 60 ms for TTFT, 20 ms for the span from the first token to the end, 1.5 ms for TPOT and gaps, and 15 % for
rates.
"""


def main(path: Path) -> int:
    """Write the page, unless no tool was observed."""
    lines = [_HEAD]
    for found in sorted((PEERS / "observed").glob("*.json")):
        lines += _section(json.loads(found.read_text()))
    if len(lines) == 1:
        sys.stderr.write("no tool was observed; the page stays as it is\n")
        return 0
    path.write_text("\n".join(lines), encoding="utf-8")
    return 0


def _section(found: dict[str, Any]) -> list[str]:
    dialect = DIALECT_BY_NAME[found["tool"]]
    lines = [f"## {dialect.version}", "", "| its name | statistic | unit | the tool | our dialect |"]
    lines.append("| --- | --- | --- | ---: | ---: |")
    for quantity in dialect.quantities:
        theirs, ours = (found[side].get(quantity.key, {}) for side in ("theirs", "ours"))
        lines += [
            f"| `{quantity.name}` | {name} | {quantity.unit} | {significant(value)} | {significant(ours[name])} |"
            for name, value in theirs.items()
            if name in ours
        ]
    return [*lines, ""]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
