"""Know which model to ask for when nobody said: the only one that the server lists."""

import http.client
import json
import ssl

from servebench.core.errors import InputError
from servebench.core.target import Target

LIMIT_S = 5.0


def only_model(target: Target, api_key: str | None) -> str | None:
    """Return the one model of GET /v1/models; None when the server has no such list.

    Called on the master before a run; blocks its greenlet for LIMIT_S at most. Raises InputError when nothing answers,
    or when there are several models to choose from.
    """
    try:
        status, body = _get(target, api_key)
    except (OSError, http.client.HTTPException) as error:
        msg = f"nothing answers at {target.redacted} ({error})\n  try: is the server up?"
        raise InputError(msg) from error
    if status != http.client.OK:
        return None
    try:
        served = [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return None
    if len(served) > 1:
        msg = f"the server serves several models: {', '.join(served)}\n  try: SERVEBENCH_MODEL={served[0]}"
        raise InputError(msg)
    return served[0] if served else None


def _get(target: Target, api_key: str | None) -> tuple[int, bytes]:
    if target.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            target.host, target.port, timeout=LIMIT_S, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(target.host, target.port, timeout=LIMIT_S)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        connection.request("GET", target.path("/v1/models"), headers=headers)
        response = connection.getresponse()
        return response.status, response.read(1 << 20)
    finally:
        connection.close()
