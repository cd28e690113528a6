"""Clients of ServeGen make the load that their windows say, and a large file is read like a small one."""

import ast
import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from servebench.core.errors import InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.builtin import data_path
from servebench.workload.model import TraceSlice
from servebench.workload.trace_csv import read_csv
from servebench.workload.trace_layout import LAYOUTS
from servebench.workload.traces import read_trace, rows_of

R1 = TraceSlice(kind="servegen", path="builtin:servegen-deepseek-r1")


def written_rate_per_s(client: int) -> float:
    """Return the mean rate over a client's windows, read without the product."""
    path = data_path("builtin:servegen-deepseek-r1") / f"chunk-{client}-trace.csv"
    rates = [float(row[1]) for row in csv.reader(path.read_text(encoding="utf-8").splitlines())]
    return sum(rates) / len(rates)


def test_servegen_clients_make_the_requests_that_their_windows_say() -> None:
    trace = read_trace(R1, seed=1)
    expected = sum(written_rate_per_s(client) for client in (12, 18, 22, 23, 54, 62, 63, 70))
    assert expected == pytest.approx(2.45, abs=0.01)
    assert len(trace) / 86_400 == pytest.approx(expected, rel=0.02)
    assert trace.end_ns == 86_400 * NS_PER_S
    assert (np.diff(trace.offset_ns) >= 0).all()
    hours = np.bincount(trace.offset_ns // (600 * NS_PER_S), minlength=144) / 600
    assert hours.min() == pytest.approx(0.45, abs=0.15)
    assert hours.max() == pytest.approx(13.8, rel=0.1)


def test_servegen_lengths_have_the_written_probabilities() -> None:
    part = TraceSlice(kind="servegen", path="builtin:servegen-deepseek-r1", clients=(18,))
    trace = read_trace(part, seed=2)
    path = data_path("builtin:servegen-deepseek-r1") / "chunk-18-dataset.json"
    stretches = json.loads(path.read_text(encoding="utf-8"))
    late = trace.input_tokens[trace.offset_ns >= 64_800 * NS_PER_S]
    shares = ast.literal_eval(stretches["64800"]["input_tokens"])
    mean = sum(tokens * share for tokens, share in shares.items()) / sum(shares.values())
    assert len(late) > 500
    assert late.mean() == pytest.approx(mean, rel=0.15)
    assert set(np.unique(late).tolist()) <= {max(round(tokens), 1) for tokens in shares}


def test_a_slice_of_servegen_holds_the_same_requests_as_the_whole() -> None:
    whole = read_trace(TraceSlice(kind="servegen", path=R1.path, clients=(18, 70)), seed=3)
    part = TraceSlice(
        kind="servegen", path=R1.path, clients=(18, 70), start_ns=40_000 * NS_PER_S, length_ns=1000 * NS_PER_S
    )
    sliced = read_trace(part, seed=3)
    assert len(sliced) < len(whole) / 20
    assert sliced.offset_ns[rows_of(sliced, part)].tolist() == whole.offset_ns[rows_of(whole, part)].tolist()
    assert sliced.input_tokens[rows_of(sliced, part)].tolist() == whole.input_tokens[rows_of(whole, part)].tolist()


def test_a_client_that_is_not_there_is_named_beside_those_that_are() -> None:
    with pytest.raises(InputError, match=r"no client 13; there are 12, 18"):
        read_trace(TraceSlice(kind="servegen", path=R1.path, clients=(12, 13)))


@pytest.mark.parametrize(
    ("row", "words"), [("0,1,1,Pareto,1,1", "Pareto"), ("0,-1,1,Gamma,1,1", "bounds"), ("0,1,1", "6 fields")]
)
def test_a_bad_window_is_a_fault_with_its_line(tmp_path: Path, row: str, words: str) -> None:
    (tmp_path / "chunk-1-trace.csv").write_text(f"0,0,0,,0,0\n{row}\n", encoding="utf-8")
    with pytest.raises(SpecError, match=words) as caught:
        read_trace(TraceSlice(kind="servegen", path=str(tmp_path)))
    assert caught.value.faults[0].line == 2


def test_code_in_a_data_set_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "chunk-1-trace.csv").write_text("0,1,1,Gamma,1,1\n", encoding="utf-8")
    evil = {
        "0": {"input_tokens": f"__import__('pathlib').Path({str(tmp_path / 'run')!r}).touch()", "output_tokens": "{}"}
    }
    (tmp_path / "chunk-1-dataset.json").write_text(json.dumps(evil), encoding="utf-8")
    with pytest.raises(SpecError, match="no token counts"):
        read_trace(TraceSlice(kind="servegen", path=str(tmp_path)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["csv", "burstgpt", "azure"])
def test_a_large_file_and_a_small_one_are_read_alike(kind: str) -> None:
    heads = {
        "csv": "timestamp,input_length,output_length,session_id",
        "burstgpt": 'Timestamp,"Session ID",Model, Request tokens ,Response tokens,',
        "azure": "TIMESTAMP,ContextTokens,GeneratedTokens",
    }
    draws = np.random.default_rng(4)
    lines = [heads[kind]]
    for number in range(3000):
        at, name = number * 0.25 + draws.integers(0, 3), ["", "a", " b "][number % 3]
        clock = f"2023-11-16 18:{int(at) // 60 % 60:02}:{int(at) % 60:02}.{number:07}"
        lines.append(
            {
                "csv": f"{at:.6f},{number + 1},{number % 50},{name}",
                "burstgpt": f"{at},{name},ChatGPT, {number + 1} ,{number % 50},",
                "azure": f"{clock},{number + 1},{number % 50}",
            }[kind]
        )
    data = "\r\n".join(lines).encode()
    small = read_csv(io.BytesIO(data), "t.csv", LAYOUTS[kind], large_bytes=1 << 30)
    large = read_csv(io.BytesIO(data), "t.csv", LAYOUTS[kind], large_bytes=10)
    assert (np.diff(small.time_ns) == np.diff(large.time_ns)).all()
    assert (small.input_tokens == large.input_tokens).all()
    assert (small.output_tokens == large.output_tokens).all()
    if kind != "azure":
        assert small.session is not None
        assert large.session is not None
        assert ((small.session == -1) == (large.session == -1)).all()
        assert len(np.unique(np.stack([small.session, large.session]), axis=1).T) == 3


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("1,2," + "9" * 5000, "output_length"),
        ("1_0,2,3", "timestamp"),
        ("infinity,2,3", "timestamp"),
        ("1e300,2,3", "timestamp"),
        ("1,²,3", "input_length"),
        ("1,2,-3", "output_length"),
        ('1,2,"3\0', "output_length"),
        ("\udcff,2,3", "timestamp"),
    ],
    ids=["digits", "underscore", "infinite", "far", "superscript", "negative", "nul", "no utf-8"],
)
@pytest.mark.parametrize("large_bytes", [10, 1 << 30])
def test_what_is_no_number_is_a_fault_however_the_file_is_read(row: str, place: str, large_bytes: int) -> None:
    data = f"timestamp,input_length,output_length\n1,2,3\n{row}\n".encode(errors="surrogateescape")
    with pytest.raises(SpecError) as caught:
        read_csv(io.BytesIO(data), "t.csv", LAYOUTS["csv"], large_bytes=large_bytes)
    (fault,) = caught.value.faults
    assert fault.line == 3
    assert fault.place in (place, "row")
    assert len(fault.message) < 200


def test_a_fault_in_a_large_file_still_has_its_line() -> None:
    data = b"timestamp,input_length,output_length\n" + b"1,2,3\n" * 50 + b"nan,2,3\n1,2\n" + b"2,2,3\n" * 50
    with pytest.raises(SpecError) as caught:
        read_csv(io.BytesIO(data), "t.csv", LAYOUTS["csv"], large_bytes=10)
    assert [(fault.line, fault.place) for fault in caught.value.faults] == [(52, "timestamp"), (53, "row")]
