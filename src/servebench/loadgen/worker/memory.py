"""Know how a loaded worker's memory is set up, so that neither the garbage collector nor a flush stalls its hub."""

import gc
import sys

import numpy as np
import pyarrow as pa


def settle_memory() -> None:
    """Move what is loaded out of the garbage collector's sight and let it run rarely.

    A full collection over a loaded worker stalls the hub by 40 to 130 ms; after this it finds next to nothing. Arrow
    gets the system's allocator: its own keeps the 18 MiB that a flush once took.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    np.quantile(np.zeros(2), 0.5)  # loads numpy.ma at its first call, which must not be in the first second of a run
    gc.unfreeze()  # an earlier run's session is a cycle: frozen for good, it would stay with all its prompts
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    sys.setswitchinterval(0.0005)
