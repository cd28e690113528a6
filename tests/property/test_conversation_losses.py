"""Who is named for a lost turn is who would have sent it, for any conversations and any history of workers."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_analysis_accounting import BASE

from servebench.analysis.accounting import RowKeys, account
from servebench.loadgen.membership import RUN_START, Change, owned
from servebench.shards.conversations import read_conversations, write_conversations
from servebench.shards.manifest import Manifest, MembersRecord

WORKERS = ("w0", "w1", "w2")
S = 1_000_000_000

sizes = st.lists(st.integers(1, 4), min_size=1, max_size=20)
members = st.lists(st.sampled_from(WORKERS), min_size=1, max_size=3, unique=True).map(sorted)
histories = st.lists(st.tuples(st.integers(0, 20), members), max_size=3, unique_by=lambda change: change[0]).map(sorted)


@given(sizes, members, histories, st.data())
def test_a_lost_turn_is_named_as_the_one_of_the_worker_that_owned_its_conversation(
    sizes: list[int], first: list[str], later: list[tuple[int, list[str]]], data: st.DataObject
) -> None:
    starts = np.cumsum([0, *sizes[:-1]]).astype(np.int64)
    total = sum(sizes)
    session = np.repeat(np.arange(len(sizes)), sizes)
    due_ns = session * S
    history = [(RUN_START, first), *((second * S, names) for second, names in later)]
    changes = [Change(from_ns, tuple(names)) for from_ns, names in history]
    owner = {seq: name for name in WORKERS for seq in np.flatnonzero(owned(changes, name, session, due_ns)).tolist()}
    records = [
        MembersRecord(from_ns=max(0, at), first_seq=int(np.searchsorted(due_ns, at)), workers=list(names))
        for at, names in history
    ]
    manifest = Manifest(engine="plan", planned=total, members=records, **BASE)  # type: ignore[arg-type] # fields by name
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, total - 1)))), np.int64)
    intended = np.where(np.isin(rows, starts), due_ns[rows].astype(float), np.nan)
    keys = RowKeys(rows, np.zeros(len(rows), np.int64), intended, np.full(len(rows), "load", object))
    with TemporaryDirectory() as folder:
        write_conversations(Path(folder), starts)
        books = account(manifest, keys, read_conversations(Path(folder)))
    named = {seq: item.worker for item in books.lost for seq in range(item.first, item.last + 1)}
    assert named.keys() == set(range(total)) - set(rows.tolist())
    assert named == {seq: owner[seq] for seq in named}
