"""Know how memory that a large reading freed goes back to the system, where others wait for it."""

import ctypes

import pyarrow as pa


def give_back() -> None:
    """Hand freed memory back; glibc keeps pieces between what is still used, Arrow's pool keeps what it may want again.

    Without effect where the C library has no `malloc_trim`.
    """
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
