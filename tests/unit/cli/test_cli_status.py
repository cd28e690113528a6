"""How the master's lines are read."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.cli.status import Event, LineBuffer, Quantiles, Status, parse_line


def test_a_full_status_line_is_read_field_by_field() -> None:
    line = {
        "kind": "status",
        "state": "running",
        "run_id": "r1",
        "folder": "/runs/r1",
        "t_s": 1.5,
        "planned": 10,
        "errors": {"http_503": 2, "timeout_first_token": 1},
        "ttft_ms": {"n": 4, "p50": 1.0, "p95": None, "max": 3.0},
        "client": {"hub_lag_ms_p99": 0.5, "cpu": 0.3},
    }
    status = parse_line(json.dumps(line).encode())
    assert isinstance(status, Status)
    assert (status.state, status.folder, status.t_s, status.planned, status.failed) == (
        "running",
        "/runs/r1",
        1.5,
        10,
        3,
    )
    assert status.ttft_ms == Quantiles(n=4, p50=1.0, p95=None, max=3.0)
    assert status.client.cpu == 0.3


def test_what_a_line_does_not_hold_is_unknown_and_not_zero() -> None:
    status = parse_line(b'{"kind":"status"}')
    assert isinstance(status, Status)
    assert (status.sent, status.inflight, status.planned_total, status.ttft_ms.p50, status.client.cpu) == (None,) * 5


def test_unknown_keys_are_ignored() -> None:
    assert parse_line(b'{"kind":"event","event":"burst","text":"burst began","more":[1]}') == Event(
        text="burst began", event="burst"
    )


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"kind":"other"}', b'{"kind":"status","sent":"many"}', b"\xff\xfe"]
)
def test_a_line_that_is_no_status_is_passed_over(line: bytes) -> None:
    assert parse_line(line) is None


@given(
    st.lists(st.binary(min_size=1, max_size=30).filter(lambda b: b"\n" not in b and b.strip()), max_size=6), st.data()
)
def test_lines_come_out_whole_however_the_pipe_cuts_them(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    buffer = LineBuffer()
    found = [line for start, end in itertools.pairwise(edges) for line in buffer.feed(stream[start:end])]
    assert found == lines
