"""Know how long a worker waits for what it has begun."""

from collections.abc import Callable

from gevent.greenlet import Greenlet

from servebench.loadgen.worker.requester import Requester

LOOK_EVERY_S = 0.2
CANCEL_LIMIT_S = 5.0
"""For rows of requests that were cancelled or whose tokens are still counted."""


def wait_for_all(engine: "Greenlet[[], None]", requester: Requester, is_drained: Callable[[], bool]) -> None:
    """Wait until the engine has ended and nothing is in flight; once `is_drained`, cancel what is.

    Closed users end with their requests, so those are cancelled while the engine still runs. Blocks the calling
    greenlet. Raises what the engine raised, after cancelling what it had begun.
    """

    def cancel_if_drained() -> None:
        if is_drained():
            requester.cancel_all()

    while not engine.ready():
        engine.join(LOOK_EVERY_S)
        cancel_if_drained()
    try:
        engine.get()
    except Exception:
        requester.cancel_all()
        requester.wait_idle(CANCEL_LIMIT_S)
        raise
    while not requester.wait_idle(LOOK_EVERY_S):
        cancel_if_drained()
