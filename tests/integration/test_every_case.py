"""Every S, O, H and T case over a real socket, whole and in pieces, a printed line each (make cases).

Times are those of expected answers (tests/golden/cases/times.json: the plan's delays) found in the server's own log:
the write that a token is due with must have begun before its stamp, and the next write after it. Three servers take
20 s, most of it the delays of the plans.
"""

import json
import time
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.golden.test_wire_cases import CASES, EXPECTED, differences, huge_event
from tests.transport_servers import replay

from servebench.core.outcomes import TOKEN_KIND_CODES, Outcome
from servebench.core.records import Answer
from servebench.core.target import parse_target
from servebench.loadgen.transport.client import Client
from servebench.loadgen.transport.exchange import Exchange
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.model import Timeouts

pytestmark = pytest.mark.integration

TIMES: dict[str, dict[str, Any]] = json.loads((CASES / "times.json").read_text(encoding="utf-8"))
BY_PLAN = frozenset({"H03", "H08"})
"""Cases that a plan resets or stalls; in pieces they just end."""
LIMITS = Timeouts(idle_ns=1_000_000_000)


class Write(NamedTuple):
    """A write of the server: when it began, and when it was due by the plan, in ms after the request."""

    t_ns: int
    due_ms: float


class Played(NamedTuple):
    """One case as client and server saw it."""

    exchange: Exchange
    request_ns: int
    writes: list[Write]


def due_times(path: Path) -> list[float]:
    """Return when each write of a plan is due, ms after the request."""
    plan = path.with_suffix(".seg")
    lines = [line.split("#")[0].split() for line in plan.read_text("utf-8").splitlines()] if plan.exists() else []
    delays = [float(words[1]) if len(words) > 1 else 0.0 for words in lines if words and words[0] != "@rst"]
    return list(accumulate(delays)) if delays else [0.0]


def play(folder: Path, names: list[str], size: int) -> dict[str, Played]:
    """Perform every case in turn, over a connection each."""
    huge = folder / "S24.http"
    huge.write_bytes(huge_event())
    paths = {name: huge if name == "S24" else CASES / "http" / f"{name}.http" for name in names}
    exchanges = {}
    with replay(list(paths.values()), folder, *(["--chunk-bytes", str(size)] if size else [])) as server:
        for name in names:
            endpoint = ENDPOINTS["openai-completions" if name == "O35" else "openai-chat"]
            client = Client(parse_target(server.url), endpoint, LIMITS, headers={}, keep_text=True)
            exchanges[name] = client.perform(b"{}", f"case-{name}", time.monotonic_ns())
            client.close()
    sent = server.events("sent")
    played = {}
    for name, request in zip(names, server.events("request"), strict=True):
        assert request["file"] == paths[name].name
        stamps = [write["t_ns"] for write in sent if write["conn"] == request["conn"]]
        due = due_times(paths[name]) if not size else [0.0] * len(stamps)
        played[name] = Played(
            exchanges[name], request["t_ns"], [Write(*pair) for pair in zip(stamps, due, strict=False)]
        )
    return played


def token_times(answer: Answer, kinds: frozenset[int] = TOKEN_KIND_CODES) -> list[int]:
    chunks = answer.chunks
    return [] if chunks is None else [ns for ns, kind in zip(chunks.ns, chunks.kind, strict=True) if kind in kinds]


def wrong_times(name: str, played: Played) -> list[str]:
    """Return what is wrong with the times of a case that was played by its plan."""
    expected = TIMES.get(name, {})
    times = token_times(played.exchange.answer)
    if expected.get("ttft_ms") is None:
        return [] if not times or name not in TIMES else [f"{len(times)} token times, none expected"]
    wanted = [float(expected["ttft_ms"])]
    if name != "O18":  # its gaps are per choice
        wanted = list(accumulate([*wanted, *expected.get("gaps_ms", [])]))
    faults = [
        f"token {number} came outside of the write at {due} ms"
        for number, (stamp, due) in enumerate(zip(times, wanted, strict=False), 1)
        if not within(stamp, due, played.writes)
    ]
    content = token_times(played.exchange.answer, frozenset({0}))
    due = expected.get("ttft_content_ms")
    if due is not None and not within(content[0], due, played.writes):
        faults.append(f"first answer token came outside of the write at {due} ms")
    if "gaps_ms" in expected and name != "O18" and len(wanted) != len(times):
        faults.append(f"{len(times)} token times, {len(wanted)} expected")
    return faults


def within(stamp: int, due_ms: float, writes: list[Write]) -> bool:
    """Return whether a stamp lies behind the beginning of a write that is due then and before the next one."""
    mine = [at for at, write in enumerate(writes) if abs(write.due_ms - due_ms) < 0.001]
    if not mine:
        return False
    later = writes[mine[-1] + 1].t_ns if mine[-1] + 1 < len(writes) else 2**63
    return writes[mine[0]].t_ns <= stamp < later


def wrong_parts(name: str, answer: Answer) -> dict[str, Any]:
    """Return reasoning, texts of choices and tools that are not as expected."""
    expected = TIMES.get(name, {})
    got: dict[str, Any] = {
        "reasoning": "".join(answer.asides),
        "texts": [answer.text, *answer.asides],
        "tools": [[tool.name, tool.arguments] for tool in answer.tools],
    }
    wanted = {key: expected[key] for key in got if expected.get(key)}
    if isinstance(wanted.get("texts"), dict):
        wanted["texts"] = list(wanted["texts"].values())
    return {key: got[key] for key, value in wanted.items() if got[key] != value}


def line_of(name: str, played: Played, faults: list[str]) -> str:
    answer, times = played.exchange.answer, token_times(played.exchange.answer)
    sent_ns = played.exchange.stamps.sent_ns or 0
    ttft = f"ttft {(times[0] - sent_ns) / 1e6:8.3f} ms" if times else "no token"
    outcome = answer.outcome if answer.outcome is Outcome.OK else f"{answer.outcome} {answer.error_class}"
    state = "right" if not faults else "WRONG"
    return f"{name}  {state}  {outcome:30} {len(times):3} token events, {ttft} {'; '.join(faults)}".rstrip()


@pytest.mark.parametrize("size", [0, 7, 1], ids=["by plan", "in sevens", "by byte"])
def test_every_case_over_a_socket_is_as_worked_out_by_hand(size: int, tmp_path: Path) -> None:
    names = [name for name in EXPECTED if (size, name) != (1, "S24")]
    failed = []
    for name, played in play(tmp_path, names, size).items():
        answer, expected = played.exchange.answer, dict(EXPECTED[name])
        if size and name in BY_PLAN:
            expected.pop("error_class")
        shared = {key: value for key, value in expected.items() if key != "one_of"}
        found = [differences(answer, shared | reading) for reading in expected.get("one_of", [{}])]
        faults = [] if {} in found else [str(found[0])]
        parts = wrong_parts(name, answer)
        faults += [str(parts)] if parts else []
        faults += [] if size else wrong_times(name, played)
        times = token_times(answer)
        faults += ["stamps go back"] if any(b < a for a, b in pairwise(times)) else []
        print(line_of(name, played, faults))
        failed += [name] if faults else []
    assert failed == []
