"""Whatever requests end as, their part holds exactly that."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.record_builders import EPOCH_NS, KINDS, chunks, expected_row, identity

from servebench.core.outcomes import CountedSource, Outcome, TokenSource
from servebench.core.records import Answer, Ask, Chunks, RequestRecord, SendStamps
from servebench.shards.columns import PartBuffer
from servebench.shards.parts import write_part
from servebench.shards.reader import read_parts
from servebench.shards.schema import REQUESTS_SCHEMA

STAMPS = st.integers(EPOCH_NS - 10**12, EPOCH_NS + 10**14)
COUNTS = st.integers(0, 2**31 - 1)
WORDS = st.sampled_from(["steady", "burst-2", "überlast", "stop", "length"])
ANY_TEXT = st.text(st.characters(codec=None), max_size=600)
SERVER_NUMBERS = st.one_of(st.none(), COUNTS, st.integers())


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


EVENTS = st.tuples(
    STAMPS,
    st.integers(-1, 2**31 - 1),
    st.integers(0, len(KINDS) - 1),
    st.integers(-1, 2**31 - 1),
    COUNTS,
    st.integers(-128, 127),
)


def columns_of(rows: list[tuple[int, int, int, int, int, int]]) -> Chunks:
    ns, delay_ns, kind, tokens, read, choice = zip(*rows, strict=True) if rows else [()] * 6
    return chunks(ns, delay_ns=delay_ns, kind=kind, tokens=tokens, read=read, choice=choice)


ASKS = st.builds(
    Ask,
    seq=st.integers(0, 2**62),
    phase=WORDS,
    step=maybe(COUNTS),
    measured=st.booleans(),
    intended_ns=maybe(st.integers(0, 10**15)),
    prompt_id=st.integers(0, 2**40),
    input_tokens=maybe(COUNTS),
    max_tokens=maybe(COUNTS),
    session=st.integers(0, 2**62),
    turn=COUNTS,
)
ANSWERS = st.builds(
    Answer,
    outcome=st.sampled_from(Outcome),
    error_class=maybe(WORDS),
    error_message=maybe(ANY_TEXT),
    http_status=maybe(st.integers(100, 599)),
    headers_ns=maybe(STAMPS),
    end_ns=STAMPS,
    finish_reason=maybe(ANY_TEXT),
    streamed=maybe(st.booleans()),
    model=maybe(ANY_TEXT),
    input_tokens=SERVER_NUMBERS,
    output_tokens=SERVER_NUMBERS,
    cached_tokens=SERVER_NUMBERS,
    reasoning_tokens=SERVER_NUMBERS,
    token_source=maybe(st.sampled_from(TokenSource)),
    retry_after_s=maybe(st.floats(allow_nan=False)),
    response_bytes=st.integers(0, 2**50),
    chunks=maybe(st.lists(EVENTS, max_size=8).map(columns_of)),
)
RECORDS = st.builds(
    RequestRecord,
    ask=ASKS,
    attempt=COUNTS,
    request_id=st.text("0123456789abcdef-", max_size=63),
    stamps=st.builds(
        SendStamps,
        dispatched_ns=maybe(STAMPS),
        connect_start_ns=maybe(STAMPS),
        connect_end_ns=maybe(STAMPS),
        sent_ns=maybe(STAMPS),
        send_end_ns=maybe(STAMPS),
    ),
    answer=ANSWERS,
    late=st.booleans(),
    target=st.sampled_from(["http://127.0.0.1:8000", "https://[::1]:443"]),
    reconnects=COUNTS,
    conn_reused=maybe(st.booleans()),
    request_bytes=st.integers(0, 2**50),
    output_tokens_counted=maybe(COUNTS),
    counted_source=maybe(st.sampled_from(CountedSource)),
    accepted=maybe(st.booleans()),
    accept_reason=maybe(st.text(max_size=40)),
    validated_ns=maybe(STAMPS),
)


@settings(deadline=None)
@given(st.lists(RECORDS, max_size=6))
def test_a_part_holds_what_was_recorded(records: list[RequestRecord]) -> None:
    buffer = PartBuffer()
    for record in records:
        buffer.add(record)
    with tempfile.TemporaryDirectory() as name:
        written = write_part(Path(name), 0, buffer, identity())
        table = pq.read_table(written.path)
    assert table.schema.equals(REQUESTS_SCHEMA)
    assert table.to_pylist() == [expected_row(record) for record in records]
    assert (written.rows, written.chunks) == (len(records), sum(len(r.answer.chunks or ()) for r in records))


@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.integers(1, 3))
def test_rows_do_not_depend_on_how_they_are_cut_into_parts(records: list[RequestRecord], rows_per_part: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        for number, start in enumerate(range(0, len(records), rows_per_part)):
            buffer = PartBuffer()
            for record in records[start : start + rows_per_part]:
                buffer.add(record)
            write_part(Path(name), number, buffer, identity())
        read = read_parts(Path(name))
    assert read.faults == ()
    assert read.table.to_pylist() == [expected_row(record) for record in records]
