"""Know how a loaded worker's memory is set up, so that neither the garbage collector nor a flush stalls its hub."""

import sys

import numpy as np
import pyarrow as pa

from servebench.loadgen.collector import calm_collector


def settle_memory() -> None:
    """Keep the garbage collector calm, and give Arrow the system's allocator: its own keeps what a flush once took."""
    pa.set_memory_pool(pa.system_memory_pool())
    np.quantile(np.zeros(2), 0.5)  # loads numpy.ma at its first call, which must not be in the first second of a run
    calm_collector()
    sys.setswitchinterval(0.0005)
