"""Know who shares the reading of large runs: processes of this machine, or a Dask cluster that sees the same files."""

import importlib
import os
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from servebench.analysis.source import PARTS
from servebench.core.errors import InputError
from servebench.shards.reader import part_paths, size_of

POOL_BYTES = 40_000_000
"""Parts of this size together pay for starting processes: some 10 million events."""
_DASK = "dask://"


@contextmanager
def helpers(folder: Path, address: str | None = None) -> Iterator[Executor | None]:
    """Give who helps to read a run folder: the cluster at `address`, else processes where the run is large, else None.

    Raises InputError for an address that is not dask://HOST:PORT, or when Dask is not installed.
    """
    if address is not None:
        with _cluster(address) as executor:
            yield executor
        return
    cores = len(os.sched_getaffinity(0))
    if cores < 2 or _size(folder / PARTS) < POOL_BYTES:
        yield None
        return
    # Arrow's threads do not survive a fork.
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as executor:
        yield executor


def _size(parts: Path) -> int:
    """Return the bytes of all parts; 0 without a folder, which whoever reads it tells better."""
    return sum(map(size_of, part_paths(parts))) if parts.is_dir() else 0


@contextmanager
def _cluster(address: str) -> Iterator[Executor]:
    if not address.startswith(_DASK):
        msg = f"--executor {address} is no cluster; e.g. {_DASK}scheduler:8786"
        raise InputError(msg)
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        msg = 'a Dask cluster needs the package distributed.\n  try: pip install "locust-servebench[dask]"'
        raise InputError(msg) from error
    with distributed.Client("tcp://" + address.removeprefix(_DASK)) as client, client.get_executor() as executor:
        yield executor
