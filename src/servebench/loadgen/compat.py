"""Know every private part of Locust that is changed, why, and how it is undone in tests.

Each patch has a contract test (tests/patched/test_locust_contract.py) that fails when Locust changes beneath it.
"""

import functools
import logging
import math
import time
from types import SimpleNamespace
from typing import Any, NoReturn

import gevent
from locust import argument_parser, runners, stats
from locust.exception import RPCError, RPCReceiveError
from locust.rpc import zmqrpc

log = logging.getLogger(__name__)

REPORT_INTERVAL_S = 1.0
_LISTENER, _HEART, _HARDENED = "_servebench_listener", "_servebench_heart", "_servebench_hardened"


def apply() -> None:
    """Patch Locust once, at import of the locustfile, before any runner exists. Calling it again changes nothing."""
    # Locust rebuilds its whole argument parser once per option on every "spawn" message: 60-85 ms of hub stall.
    if not hasattr(argument_parser.default_args_dict, "cache_info"):
        argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    runners.WORKER_REPORT_INTERVAL = REPORT_INTERVAL_S
    # To name its caller in a debug line, Locust's stop() looks up the file of every module: a hub stall while answers
    # are still coming in. It takes an exception there for an answer.
    runners.inspect = SimpleNamespace(stack=_name_no_caller)  # type: ignore[attr-defined, assignment] # for the module
    # A wall clock that is set meanwhile would end a worker (no heartbeat for 60 s), or have it drop the next edit for
    # older than the last. Locust only compares these times with one another.
    runners.time = SimpleNamespace(time=time.monotonic)  # type: ignore[attr-defined, assignment] # for the module
    _keep_listening()
    _go_on_alone()
    _survive_strangers()
    stats.bucket_response_time = three_digits  # type: ignore[assignment] # Locust says int; its keys may be any number


def _name_no_caller() -> NoReturn:
    raise LookupError


def _keep_listening() -> None:
    """Let the master hear its workers while Locust spreads users anew.

    Locust does that inside the greenlet that reads messages, for 1 s and more, whenever a worker leaves or joins: no
    sign of life is heard meanwhile, and every worker would count as lost.
    """
    master = runners.MasterRunner
    if hasattr(master, _LISTENER):
        return
    listen, start = master.client_listener, master.start

    @functools.wraps(listen)
    def client_listener(self: Any) -> Any:  # noqa: ANN401 - Locust is untyped
        setattr(self, _LISTENER, gevent.getcurrent())
        return listen(self)

    @functools.wraps(start)
    def start_beside(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Locust is untyped
        if gevent.getcurrent() is getattr(self, _LISTENER):
            self.greenlet.spawn(start, self, *args, **kwargs)
        else:
            start(self, *args, **kwargs)

    setattr(master, _LISTENER, None)
    master.client_listener = client_listener  # type: ignore[method-assign]
    master.start = start_beside  # type: ignore[method-assign]


def _go_on_alone() -> None:
    """Keep Locust's master from ending the test as if somebody had asked for it when no worker is heard for 4 s.

    A network that is down for 10 s would end a run of hours, and one whose workers all died would count as finished.
    The coordinator knows which workers it has and ends the run itself.
    """
    master = runners.MasterRunner
    if hasattr(master, _HEART):
        return
    beat, stop = master.heartbeat_worker, master.stop

    @functools.wraps(beat)
    def heartbeat_worker(self: Any) -> Any:  # noqa: ANN401 - Locust is untyped
        setattr(self, _HEART, gevent.getcurrent())
        return beat(self)

    @functools.wraps(stop)
    def stop_unless_alone(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Locust is untyped
        if gevent.getcurrent() is not getattr(self, _HEART):
            stop(self, *args, **kwargs)

    setattr(master, _HEART, None)
    master.heartbeat_worker = heartbeat_worker  # type: ignore[method-assign]
    master.stop = stop_unless_alone  # type: ignore[method-assign]


def _survive_strangers() -> None:
    """Let the master leave out, with a word in its log, what is no message of a worker.

    Locust lets all but two kinds of error of decoding and handling end the greenlet that reads: the master is deaf from
    then on, and each of its workers counts as lost.
    """
    server, master = zmqrpc.Server, runners.MasterRunner
    if hasattr(server, _HARDENED):
        return
    receive, handle = server.recv_from_client, master.handle_message

    @functools.wraps(receive)
    def recv_from_client(self: Any) -> Any:  # noqa: ANN401 - Locust is untyped
        while True:
            try:
                return receive(self)  # type: ignore[no-untyped-call] # Locust is untyped
            except RPCReceiveError as error:
                log.warning("a message that no worker sends: %s", error)
            except RPCError:
                raise  # the socket itself; Locust makes a new one
            except Exception as error:  # noqa: BLE001 - whatever msgpack or its caller make of a stranger's bytes
                log.warning("a message that no worker sends: %r", error)

    @functools.wraps(handle)
    def handle_message(self: Any, client_id: str, msg: Any) -> None:  # noqa: ANN401 - Locust is untyped
        try:
            handle(self, client_id, msg)
        except Exception as error:  # noqa: BLE001 - the same, of a message with a worker's form
            log.warning("a message %.40r of %.40r is left out: %r", msg.type, client_id, error)

    setattr(server, _HARDENED, True)
    server.recv_from_client = recv_from_client  # type: ignore[method-assign]
    master.handle_message = handle_message  # type: ignore[method-assign]


def three_digits(milliseconds: float) -> float:
    """Return a response time rounded to three significant digits.

    Locust's own buckets are off by up to 33 % near 1 ms; these stay within 0.5 %.
    """
    if milliseconds <= 0:
        return 0
    digits = 2 - math.floor(math.log10(milliseconds))
    return round(milliseconds, digits)
