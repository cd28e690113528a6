"""Know the way to a service as workload and environment say it together; the load and every question go by it."""

from collections.abc import Mapping

from servebench.core.headers import merged
from servebench.core.target import Target, parse_proxy
from servebench.inquiry.secrets import PROXY, Secrets
from servebench.wire.approach import Approach
from servebench.wire.endpoint import Endpoint


def approach_to(
    target: Target, endpoint: Endpoint, secrets: Secrets, *, headers: Mapping[str, str], proxy: str | None
) -> Approach:
    """Return how requests of an endpoint reach a target; `headers` and `proxy` are the workload's.

    The key goes where the endpoint looks for it. Of headers of one name those of the endpoint itself are the weakest,
    then come `headers`, the key, and those of the environment. Raises InputError for a proxy that is none.
    """
    key = {} if secrets.api_key is None else {"Authorization": f"Bearer {secrets.api_key}"}
    by = parse_proxy(secrets.proxy, PROXY) if secrets.proxy else parse_proxy(proxy, "requests.proxy") if proxy else None
    return Approach(target=target, proxy=by, headers=endpoint.headers_with(merged(headers, key, secrets.headers)))
