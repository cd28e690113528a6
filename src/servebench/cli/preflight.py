"""Know what is asked of a service before any load: does it answer, does it take our key, does it serve the model."""

from typing import TYPE_CHECKING

from servebench.core.target import parse_target
from servebench.inquiry.models import Found, Question, find_model
from servebench.inquiry.secrets import Secrets
from servebench.inquiry.way import approach_to
from servebench.wire.endpoints import ENDPOINTS

if TYPE_CHECKING:
    from servebench.workload.model import Workload

_SKIP = "\n  try: --no-preflight  starts without asking"


def preflight(url: str, *, model: str | None, secrets: Secrets, workload: "Workload | None" = None) -> Found:
    """Ask the service at `url` for its models within 5 s, by the way that the workload's requests will go.

    Raises InputError with reason and way out when load could not work: unreachable, wrong key, unknown model.
    """
    endpoint, headers, proxy, redirects = "openai-chat", {}, None, False
    if workload is not None:
        requests = workload.requests
        endpoint, headers = workload.target.endpoint, requests.headers
        proxy, redirects = requests.proxy, requests.redirects
    way = approach_to(parse_target(url), ENDPOINTS[endpoint], secrets, headers=headers, proxy=proxy)
    return find_model(Question(approach=way, model=model, redirects=redirects, skip=_SKIP))
