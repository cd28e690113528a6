"""What becomes of a record on its way into a table."""

import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from tests.record_builders import EPOCH_NS, answer, ask, chunks, expected_row, record

from servebench.core.records import RequestRecord
from servebench.shards.columns import MAX_ROWS, PartBuffer
from servebench.shards.schema import REQUESTS_SCHEMA


def row_of(made: RequestRecord) -> dict[str, Any]:
    buffer = PartBuffer()
    buffer.add(made)
    [row] = buffer.to_table(run_id="r", worker="w", epoch_monotonic_ns=EPOCH_NS).to_pylist()
    return row


def test_stamps_become_run_clock_and_the_intended_time_is_that_already() -> None:
    row = row_of(record(ask=ask(intended_ns=50)))
    assert (row["intended_ns"], row["dispatched_ns"], row["sent_ns"], row["end_ns"]) == (50, 100, 200, 9_000)


def test_chunk_stamps_are_rounded_to_the_nearest_tick_halves_up() -> None:
    given = [0, 511, 512, 1_535, 1_536, 102_400]
    row = row_of(record(answer=answer(chunks=chunks([EPOCH_NS + ns for ns in given]))))
    assert row["chunk_ns"] == [0, 0, 1_024, 1_024, 2_048, 102_400]


def test_stamps_before_the_planned_start_round_the_same_way() -> None:
    row = row_of(record(answer=answer(chunks=chunks([EPOCH_NS - 513, EPOCH_NS - 512, EPOCH_NS - 1]))))
    assert row["chunk_ns"] == [-1_024, 0, 0]


def test_the_read_stamp_behind_a_delay_is_rounded_like_the_arrival() -> None:
    events = chunks([EPOCH_NS + 500, EPOCH_NS + 500], delay_ns=[20, 40_000])
    row = row_of(record(answer=answer(chunks=events)))
    read_ns = [ns + delay for ns, delay in zip(row["chunk_ns"], row["chunk_delay_ns"], strict=True)]
    assert read_ns == [1_024, 39 * 1_024 + 1_024]


def test_no_kernel_stamp_and_unknown_tokens_are_null_elements() -> None:
    events = chunks([EPOCH_NS, EPOCH_NS], delay_ns=[-1, 0], tokens=[3, -1])
    row = row_of(record(answer=answer(chunks=events)))
    assert (row["chunk_delay_ns"], row["chunk_tokens"]) == ([None, 0], [3, None])


def test_no_head_is_a_null_list_and_a_head_without_events_an_empty_one() -> None:
    assert row_of(record(answer=answer(chunks=None)))["chunk_ns"] is None
    assert row_of(record(answer=answer(chunks=chunks([]))))["chunk_ns"] == []


def test_usage_that_no_column_can_hold_is_null_and_costs_nothing_else() -> None:
    row = row_of(record(answer=answer(input_tokens=2**31, output_tokens=10**30, cached_tokens=2**31 - 1)))
    assert (row["input_tokens"], row["output_tokens"], row["cached_tokens"]) == (None, None, 2**31 - 1)
    assert row["http_status"] == 200


def test_an_error_message_ends_at_a_character_before_500_bytes() -> None:
    assert row_of(record(answer=answer(error_message="ü" * 300)))["error_message"] == "ü" * 250
    assert row_of(record(answer=answer(error_message="x" + "ü" * 300)))["error_message"] == "x" + "ü" * 249


def test_lone_surrogates_do_not_cost_the_part() -> None:
    row = row_of(record(answer=answer(model="\ud800", error_message="a\udcffb")))
    assert (row["model"], row["error_message"]) == ("?", "a?b")


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"tokens": array("i", [1])}, id="one array is shorter"),
        pytest.param({"kind": array("i", [0, 0])}, id="an array is of another type"),
    ],
)
def test_chunk_arrays_that_do_not_fit_together_are_refused_whole(wrong: dict[str, Any]) -> None:
    buffer = PartBuffer()
    buffer.add(record(0))
    broken = chunks([EPOCH_NS, EPOCH_NS])
    for name, values in wrong.items():
        setattr(broken, name, values)
    with pytest.raises(ValueError, match="not of one length"):
        buffer.add(record(1, answer=answer(chunks=broken)))
    buffer.add(record(2))
    table = buffer.to_table(run_id="r", worker="w", epoch_monotonic_ns=EPOCH_NS)
    assert table.to_pylist() == [expected_row(record(seq), run_id="r", worker="w") for seq in (0, 2)]


def test_a_buffer_holds_as_many_words_as_rows_and_then_refuses() -> None:
    buffer = PartBuffer()
    for seq in range(MAX_ROWS):
        buffer.add(record(seq, answer=answer(model=f"m{seq}", chunks=None)))
    with pytest.raises(ValueError, match="32767 rows"):
        buffer.add(record(MAX_ROWS))
    table = buffer.to_table(run_id="r", worker="w", epoch_monotonic_ns=EPOCH_NS)
    assert table["model"].to_pylist() == [f"m{seq}" for seq in range(MAX_ROWS)]


def test_an_empty_buffer_is_an_empty_table_of_the_schema() -> None:
    table = PartBuffer().to_table(run_id="r", worker="w", epoch_monotonic_ns=EPOCH_NS)
    assert table.num_rows == 0
    assert table.schema.equals(REQUESTS_SCHEMA, check_metadata=True)
    table.validate(full=True)


def test_writing_a_part_loads_no_pandas(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from servebench.shards.columns import PartBuffer
from servebench.shards.parts import write_part
from tests.record_builders import identity, record
buffer = PartBuffer()
buffer.add(record())
write_part(Path(sys.argv[1]), 0, buffer, identity())
print(sorted({"pandas", "pyarrow.compute"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
