"""Traces are read to the nanosecond, and what is wrong with one is told by line."""

import io

import numpy as np
import pytest

from servebench.core.errors import InputError, SpecError
from servebench.core.units import NS_PER_S
from servebench.workload.model import TraceSlice
from servebench.workload.rows import Trace, in_order
from servebench.workload.trace_csv import read_csv
from servebench.workload.trace_layout import LAYOUTS
from servebench.workload.traces import left_out_of, read_trace, rows_of, whole_seconds_ns

HEAD = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def parse_azure(data: bytes, source: str) -> Trace:
    return in_order(read_csv(io.BytesIO(data), source, LAYOUTS["azure"]), source)


def trace_of(*rows: str) -> bytes:
    return HEAD + "\r\n".join(rows).encode()


def test_the_shipped_trace_has_the_published_figures() -> None:
    trace = read_trace(TraceSlice(kind="azure", path="builtin:azure-llm-2023-conv"))
    assert len(trace) == 19_366
    assert trace.offset_ns[-1] == 3_501_721_937_000
    assert trace.input_tokens.sum() == 22_361_870
    assert trace.output_tokens.sum() == 4_088_665
    assert np.bincount(trace.offset_ns // NS_PER_S).max() == 16
    gaps = np.diff(trace.offset_ns)
    assert gaps.std() / gaps.mean() == pytest.approx(1.09, abs=0.005)


def test_seven_digit_fractions_survive_across_a_minute() -> None:
    trace = parse_azure(
        trace_of(
            "2024-03-05 09:00:00.0010000,120,10",
            "2024-03-05 09:00:00.0020000,80,20",
            "2024-03-05 09:00:59.9999995,10,3",
            "2024-03-05 09:01:00.0000004,10,3",
        ),
        "t.csv",
    )
    assert trace.offset_ns.tolist() == [0, 1_000_000, 59_998_999_500, 59_999_000_400]
    assert trace.input_tokens.tolist() == [120, 80, 10, 10]
    assert trace.output_tokens.tolist() == [10, 20, 3, 3]


def test_the_form_of_2024_with_zone_and_six_digits_is_read() -> None:
    trace = parse_azure(
        trace_of("2024-05-10 23:59:59.999999+00:00,5,6", "2024-05-11 00:00:00.000001+00:00,7,8"), "t.csv"
    )
    assert trace.offset_ns.tolist() == [0, 2_000]


def test_zones_count() -> None:
    trace = parse_azure(trace_of("2024-05-10 12:00:00+02:00,5,6", "2024-05-10 10:00:01Z,7,8"), "t.csv")
    assert trace.offset_ns.tolist() == [0, NS_PER_S]


def test_days_months_and_leap_years_are_crossed() -> None:
    trace = parse_azure(trace_of("2024-02-29 23:59:59,1,1", "2024-03-01 00:00:00,1,1"), "t.csv")
    assert trace.offset_ns.tolist() == [0, NS_PER_S]


def test_rows_out_of_order_are_sorted_stably_and_counted() -> None:
    seconds = ["00", "05", "02", "02", "09", "08"]
    rows = [f"2024-01-01 00:00:{second},{10 * index},1" for index, second in enumerate(seconds, start=1)]
    trace = parse_azure(trace_of(*rows), "t.csv")
    assert (trace.offset_ns // NS_PER_S).tolist() == [0, 2, 2, 5, 8, 9]
    assert trace.input_tokens.tolist() == [10, 30, 40, 20, 60, 50]
    assert trace.steps_back == 2


def test_rows_of_one_time_keep_the_order_of_the_file() -> None:
    rows = [f"2024-01-01 00:00:0{number % 2},{number},1" for number in range(2, 202)]
    trace = parse_azure(trace_of(*rows), "t.csv")
    assert trace.input_tokens.tolist() == [*range(2, 202, 2), *range(3, 202, 2)]


def test_rows_without_output_are_left_out_and_the_first_kept_row_is_zero() -> None:
    rows = [("05", 22), ("09", 0), ("17", 31), ("30", 0), ("45", 260)]
    trace = parse_azure(trace_of(*(f"2024-01-01 00:00:{second},7,{output}" for second, output in rows)), "t.csv")
    assert (trace.offset_ns // NS_PER_S).tolist() == [0, 12, 40]
    assert left_out_of(trace, TraceSlice(kind="azure", path="t.csv")) == 2
    assert left_out_of(trace, TraceSlice(kind="azure", path="t.csv", length_ns=5 * NS_PER_S)) == 1


def test_a_header_from_a_spreadsheet_is_understood() -> None:
    data = b'\xef\xbb\xbf"Timestamp", contexttokens ,GENERATEDTOKENS,\r\n"2024-01-01 00:00:00", 5 ,6,\r\n'
    trace = parse_azure(data, "t.csv")
    assert trace.input_tokens.tolist() == [5]
    assert trace.output_tokens.tolist() == [6]


def test_blank_lines_are_no_rows_and_one_row_is_a_trace() -> None:
    trace = parse_azure(trace_of("", "2024-01-01 00:00:00,5,6", "   ", ""), "t.csv")
    assert trace.offset_ns.tolist() == [0]
    assert whole_seconds_ns(trace, 0) == NS_PER_S


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("2024-13-01 00:00:00,5,6", "TIMESTAMP"),
        ("2023-02-29 00:00:00,5,6", "TIMESTAMP"),
        ("17000000,5,6", "TIMESTAMP"),
        ("2024-01-01 00:00:00.12345678901,5,6", "TIMESTAMP"),
        ("2024-01-01 00:00:00,-5,6", "ContextTokens"),
        ("2024-01-01 00:00:00,5,6.0", "GeneratedTokens"),
        ("2024-01-01 00:00:00,5,99999999999", "GeneratedTokens"),
        ("2024-01-01 00:00:00,5", "row"),
    ],
)
def test_a_bad_row_is_a_fault_with_line_and_value(row: str, place: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_azure(trace_of("2024-01-01 00:00:00,1,1", row), "t.csv")
    (fault,) = caught.value.faults
    assert (fault.line, fault.place) == (3, place)
    assert caught.value.source == "t.csv"


def test_every_bad_row_is_told_up_to_twenty() -> None:
    with pytest.raises(SpecError) as caught:
        parse_azure(trace_of(*["x,1,1"] * 100), "t.csv")
    assert len(caught.value.faults) == 20


def test_a_missing_column_is_named_beside_those_present() -> None:
    with pytest.raises(SpecError, match=r"ContextTokens.*'Prompt tokens'"):
        parse_azure(b"TIMESTAMP,Prompt tokens,GeneratedTokens\n2024-01-01 00:00:00,1,1\n", "t.csv")


@pytest.mark.parametrize("data", [b"", b"\n\n", HEAD, HEAD + b"2024-01-01 00:00:00,5,0\r\n"])
def test_a_trace_without_usable_rows_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="no usable rows"):
        parse_azure(data, "t.csv")


def test_a_slice_holds_its_start_and_not_its_end() -> None:
    trace = parse_azure(trace_of(*(f"2024-01-01 00:00:0{second},{second + 1},1" for second in range(6))), "t.csv")
    part = TraceSlice(kind="azure", path="t.csv", start_ns=2 * NS_PER_S, length_ns=2 * NS_PER_S)
    assert trace.input_tokens[rows_of(trace, part)].tolist() == [3, 4]
