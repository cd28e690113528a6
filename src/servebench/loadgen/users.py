"""Know the Locust user that stands for offered load instead of sending requests itself."""

from collections.abc import Callable
from typing import ClassVar

from locust import User, constant, task


class LoadToken(User):
    """One Locust user = `--rate-per-user` requests per second of offered load.

    It only moves a counter and then waits: the worker's dispatcher sends. A token that slept inside its task would hold
    up every ramp-down for the whole stop timeout.
    """

    wait_time = constant(1_000_000)
    on_change: ClassVar[Callable[[int], None]] = staticmethod(lambda _by: None)

    def on_start(self) -> None:
        """Add this token's rate."""
        type(self).on_change(+1)

    def on_stop(self) -> None:
        """Take this token's rate away."""
        type(self).on_change(-1)

    @task
    def hold(self) -> None:
        """Do nothing: Locust wants a task."""
