"""Know which model to ask for when nobody said: the only one that the server lists."""

from servebench.core.target import Target
from servebench.inquiry.models import Question, find_model
from servebench.inquiry.secrets import Secrets
from servebench.inquiry.way import approach_to
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.model import Workload


def only_model(target: Target, workload: Workload, secrets: Secrets) -> str | None:
    """Return the one model of GET /v1/models, asked for as the workload's requests are; None without such a list.

    Called on the master before a run; blocks its greenlet for 5 s at most. Raises InputError when nothing answers, when
    the key is refused, or when there are several models to choose from.
    """
    requests = workload.requests
    endpoint = ENDPOINTS[workload.target.endpoint]
    way = approach_to(target, endpoint, secrets, headers=requests.headers, proxy=requests.proxy)
    return find_model(Question(approach=way, name_it="SERVEBENCH_MODEL=", redirects=requests.redirects)).model
