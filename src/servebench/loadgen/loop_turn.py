"""Know how a greenlet that starts many others lets the loop look at sockets in between."""

import gevent

STARTS_PER_TURN = 4
"""Requests begun in one iteration of the loop. Were all of a wave begun at once, the first answers would wait unread
until the last request is out: at 256 starts so long that a second token may join the first in one read."""

_LAST = -2
"""libev's lowest priority: of what is ready in one iteration, this is served last."""


def let_loop_run() -> None:
    """Block the calling greenlet until descriptors and timers had their turn.

    After `gevent.sleep(0)` a greenlet is resumed before the loop looks at descriptors.
    """
    hub = gevent.get_hub()
    timer = hub.loop.timer(0, priority=_LAST)
    try:
        hub.wait(timer)
    finally:
        timer.close()
