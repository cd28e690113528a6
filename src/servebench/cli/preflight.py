"""Know what is asked of a service before any load: does it answer, does it take our key, does it serve the model."""

import http.client
import json
import os
import queue
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servebench.core.errors import InputError
from servebench.core.target import Target, parse_target

CONNECT_LIMIT_S = 2.0
TOTAL_LIMIT_S = 4.5
"""A mistake is told within 5 s of Enter."""
_BODY_LIMIT = 4 << 20
_MODELS = "/v1/models"
_SKIP = "\n  try: --no-preflight  starts without asking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the service said. `model` None = none was asked for and it did not name exactly one."""

    model: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Status, Location header and body of the answer to the question for models."""

    status: int
    location: str | None
    body: bytes


def preflight(url: str, *, model: str | None, environ: Mapping[str, str] = os.environ) -> Found:
    """Ask the service at `url` for its models, with the user's key, within 5 s.

    Raises InputError with reason and way out when load could not work: unreachable, wrong key, unknown model.
    """
    target = parse_target(url)
    key = read_key(environ)
    reply = _ask_within_limit(target, key)
    return judge(target, reply, model=model, has_key=key is not None)


def read_key(environ: Mapping[str, str]) -> str | None:
    """Return the key of SERVEBENCH_API_KEY_FILE or SERVEBENCH_API_KEY; None when neither is set.

    Raises InputError when the file cannot be read or the key cannot stand in a header.
    """
    path = environ.get("SERVEBENCH_API_KEY_FILE")
    try:
        key = Path(path).read_text(encoding="utf-8").strip() if path else environ.get("SERVEBENCH_API_KEY")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"SERVEBENCH_API_KEY_FILE {path} cannot be read: {error}"
        raise InputError(msg) from error
    if key and not (key.isascii() and key.isprintable()):
        msg = (
            "the key holds a line end or another character that no header may hold.\n  try: the key alone, on one line"
        )
        raise InputError(msg)
    return key or None


def judge(target: Target, reply: Reply, *, model: str | None, has_key: bool) -> Found:
    """Return the model to ask for, from the answer to GET /v1/models.

    Raises InputError where the answer means that requests would fail.
    """
    asked = f"GET {target.url_of(_MODELS)} answered {reply.status}"
    if reply.status in {401, 403}:
        raise InputError(_key_message(reply.status, has_key=has_key))
    if 300 <= reply.status < 400:
        msg = f"{asked}, a redirect, which load does not follow.\n  try: --url {_redirect_target(reply)}"
        raise InputError(msg)
    if reply.status >= 500 and reply.status != 501:
        msg = f"{asked}: is the model still loading?{_SKIP}"
        raise InputError(msg)
    if reply.status != 200:
        return Found(model=model, notes=(f"{asked}, so the model was not checked.",))
    served = model_ids(reply.body)
    if not served:
        return Found(model=model, notes=(f"{asked} without a list of models, so the model was not checked.",))
    return _choose(served, model)


def model_ids(body: bytes) -> tuple[str, ...]:
    """Return the ids of an OpenAI model list; none when the body is not one."""
    try:
        rows = json.loads(body)["data"]
        return tuple(row["id"] for row in rows if isinstance(row["id"], str))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def _choose(served: tuple[str, ...], model: str | None) -> Found:
    shown = ", ".join(served[:10]) + (f" and {len(served) - 10} more" if len(served) > 10 else "")
    if model is None and len(served) == 1:
        return Found(model=served[0], notes=(f"Model: {served[0]}, the only one served.",))
    if model is None:
        msg = f"the server serves {len(served)} models and none was asked for: {shown}.\n  try: --model {served[0]}"
        raise InputError(msg)
    if model not in served:
        msg = f'the server does not serve "{model}". It serves: {shown}.\n  try: --model {served[0]}'
        raise InputError(msg)
    return Found(model=model)


def _key_message(status: int, *, has_key: bool) -> str:
    if has_key:
        return f"the server refuses the key that is set ({status}).\n  try: another SERVEBENCH_API_KEY"
    way_out = "export SERVEBENCH_API_KEY=…  (or SERVEBENCH_API_KEY_FILE)"
    return f"the server wants a key ({status}) and none is set.\n  try: {way_out}"


def _redirect_target(reply: Reply) -> str:
    try:
        return parse_target(reply.location or "").redacted.removesuffix(_MODELS)
    except InputError:
        return "the address that it redirects to"


def _ask_within_limit(target: Target, key: str | None) -> Reply:
    """Ask in a thread, because neither a resolver nor a server that sends one byte a second keeps to a time limit."""
    answers: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_ask(target, key))
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            answers.put(error)

    threading.Thread(target=ask, daemon=True, name="preflight").start()
    try:
        answer = answers.get(timeout=TOTAL_LIMIT_S)
    except queue.Empty:
        msg = f"no answer from {target.authority} to GET {_MODELS} in {TOTAL_LIMIT_S:g} s.{_SKIP}"
        raise InputError(msg) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ask(target: Target, key: str | None) -> Reply:
    connection = http.client.HTTPConnection(target.host, target.port)
    try:
        connection.sock = connect(target)
        connection.request("GET", target.path(_MODELS), headers=request_headers(target, key))
        response = connection.getresponse()
        return Reply(status=response.status, location=response.getheader("location"), body=response.read(_BODY_LIMIT))
    except ssl.SSLCertVerificationError as error:
        why = f"is not trusted: {error.verify_message}"
        msg = f"the certificate of {target.authority} {why}.\n  try: SSL_CERT_FILE=ca.pem"
        raise InputError(msg) from error
    except ssl.SSLError as error:
        msg = f"{target.authority} does not speak TLS ({error.reason}).\n  try: --url http://{target.authority}{target.base_path}"
        raise InputError(msg) from error
    except TimeoutError as error:
        msg = f"{target.authority} took the connection and did not answer GET {_MODELS}.{_SKIP}"
        raise InputError(msg) from error
    except (http.client.HTTPException, ConnectionError, OSError, ValueError) as error:
        msg = f"{target.authority} does not speak HTTP ({type(error).__name__}).{_other_scheme(target)}"
        raise InputError(msg) from error
    finally:
        connection.close()


def connect(target: Target) -> socket.socket:
    """Return a connected socket, with TLS where the scheme wants it; tries every address of the host."""
    deadline = time.monotonic() + CONNECT_LIMIT_S
    failure: OSError = TimeoutError()
    for family, kind, protocol, _, place in _resolve(target):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(max(0.05, deadline - time.monotonic()))
            plain.connect(place)
            plain.settimeout(CONNECT_LIMIT_S)
        except OSError as error:
            plain.close()
            failure = error
            continue
        if target.scheme == "http":
            return plain
        return ssl.create_default_context().wrap_socket(plain, server_hostname=target.host)
    raise InputError(_connect_message(target, failure)) from failure


def _resolve(target: Target) -> list[tuple[int, int, int, str, tuple[object, ...]]]:
    try:
        return list(socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError) as error:
        msg = f'cannot resolve host "{target.host}".\n  try: its IP address in --url'
        raise InputError(msg) from error


def _connect_message(target: Target, failure: OSError) -> str:
    if isinstance(failure, ConnectionRefusedError):
        return (
            f"nothing listens at {target.authority} (connection refused).\n"
            f"  try: is the server up?  curl -sS {target.url_of(_MODELS)}      no server at hand:  servebench demo"
        )
    if isinstance(failure, TimeoutError):
        return f"no answer from {target.authority} in {CONNECT_LIMIT_S:g} s (firewall or wrong address?)."
    return f"cannot connect to {target.authority}: {failure.strerror or failure}."


def request_headers(target: Target, key: str | None) -> dict[str, str]:
    """Return the headers of a GET; the key goes before the address's own name and password."""
    authorization = f"Bearer {key}" if key is not None else target.authorization
    return {
        "Accept": "application/json",
        "User-Agent": "servebench",
        **({"Authorization": authorization} if authorization is not None else {}),
    }


def _other_scheme(target: Target) -> str:
    return f"\n  try: --url https://{target.authority}{target.base_path}" if target.scheme == "http" else ""
