"""Know how typed messages travel over Locust's own connection between master and workers.

Locust swallows what a message handler raises; here it ends the run through `on_failure`. Handlers run in Locust's RPC
greenlet and must not block.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

MessageT = TypeVar("MessageT", bound=msgspec.Struct)
PREFIX = "servebench."


def wire_name(kind: type[msgspec.Struct]) -> str:
    """Return the Locust message type that carries this Struct."""
    return PREFIX + kind.__name__


class StrayMessageError(LookupError):
    """A message of a run or worker that is not, or no longer, known here: noted, and no failure."""


class GarbledMessageError(ValueError):
    """A message that is not of the form its name promises: of a stranger, or of another version of servebench."""


class Channel:
    """Sends and receives messages over one Locust runner (master, worker or local: then both sides share it)."""

    def __init__(self, runner: Any, on_failure: Callable[[BaseException], None]) -> None:  # noqa: ANN401 - Locust is untyped
        self._runner = runner
        self._on_failure = on_failure

    def send(self, message: msgspec.Struct, worker_id: str | None = None) -> None:
        """Send to the master (from a worker) or to one worker; any greenlet, blocks at most for a socket write."""
        self._runner.send_message(
            wire_name(type(message)), msgspec.to_builtins(message, builtin_types=(bytes,)), client_id=worker_id
        )

    def on(self, kind: type[MessageT], handler: Callable[[MessageT], None]) -> None:
        """Call `handler` for each message of this kind."""

        def listener(environment: Any, msg: Any, **_: Any) -> None:  # noqa: ANN401 - Locust's signature
            try:
                handler(_decoded(msg.data, kind))
            except Exception as error:  # noqa: BLE001 - top of a Locust callback: the run ends, Locust lives
                self._on_failure(error)

        self._runner.register_message(wire_name(kind), listener)


def _decoded(data: Any, kind: type[MessageT]) -> MessageT:  # noqa: ANN401 - whatever came
    try:
        return msgspec.convert(data, kind, strict=False, builtin_types=(bytes,))
    except (msgspec.ValidationError, RecursionError) as error:
        msg = f"a {kind.__name__} that is none: {error}; run the same version of servebench on all hosts"
        raise GarbledMessageError(msg) from error
