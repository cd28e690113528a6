"""Know how a process that must answer at once keeps the garbage collector from stalling its hub."""

import gc


def calm_collector() -> None:
    """Move what is loaded out of the garbage collector's sight and let it run rarely.

    A full collection over a loaded process stalls its hub by 40 to 130 ms; after this it finds next to nothing. Doing
    it takes as long once: before a run is armed.
    """
    gc.unfreeze()  # what an earlier run left is a cycle: frozen for good, it would stay with all its prompts
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
