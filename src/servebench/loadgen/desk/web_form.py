"""Know what the Start and Edit forms may hold; a fault is told in place, with the value and the way out."""

import math
import socket
from collections.abc import Callable, Mapping

from servebench.core.errors import InputError
from servebench.core.target import Target, parse_target

REACH_S = 1.0
MAX_RATE = 1_000_000


def form_fault(
    form: Mapping[str, str], *, running_host: str | None, reach: Callable[[Target], str | None]
) -> str | None:
    """Return what is wrong with a form, None when it may go on.

    `running_host` is where the load goes at the moment, None between runs; `reach` says why a target cannot be reached.
    """
    for name, title in (("user_count", "Offered rate"), ("spawn_rate", "Change of the rate")):
        fault = _number_fault(title, form.get(name), whole=name == "user_count")
        if fault is not None:
            return fault
    if "rate_per_user" in form:
        fault = _number_fault("Rate per user", form["rate_per_user"], whole=False)
        if fault is not None:
            return fault
    host = form.get("host")
    return None if host is None else _host_fault(host, running_host, reach)


def unreachable(target: Target) -> str | None:
    """Return why nothing answers at a target; blocks its greenlet for REACH_S at most."""
    try:
        socket.create_connection((target.host, target.port), timeout=REACH_S).close()
    except ConnectionRefusedError:
        return f"nothing listens at {target.redacted} (connection refused)"
    except TimeoutError:
        return f"no answer from {target.redacted} in {REACH_S:g} s"
    except OSError as error:
        return f"cannot reach {target.redacted}: {error.strerror or error}"
    return None


def _number_fault(title: str, text: str | None, *, whole: bool) -> str | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return f'{title}: "{text}" is no number; e.g. 10'
    if not math.isfinite(value) or not 0 < value <= MAX_RATE:
        return f"{title}: {text} must be above 0 and at most {MAX_RATE:,}"
    if whole and value != int(value):
        return f"{title}: {text} must be a whole number here; for parts of a request per second set rate_per_user"
    return None


def _host_fault(host: str, running_host: str | None, reach: Callable[[Target], str | None]) -> str | None:
    if running_host is not None:
        same = host.rstrip("/") == running_host.rstrip("/")
        return None if same else f"Host: the run goes on to {running_host}; stop it before you choose another"
    try:
        target = parse_target(host, "Host:")
    except InputError as error:
        return str(error)
    if target.authorization or target.query:
        return (
            "Host: no user, password or query here: this page shows its host to everybody. Start with "
            "servebench ui --url, which keeps them to itself"
        )
    why = reach(target)
    return None if why is None else f"Host: {why}"
