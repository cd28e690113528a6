"""Know which workloads a person may drive by setting the rate of requests."""

from servebench.core.errors import InputError
from servebench.workload.model import Workload

LAWS = ("constant", "poisson", "gamma", "weibull")
_WAY_OUT = "choose Drive: as planned, or run this workload headless"


def refuse_by_hand(workload: Workload) -> None:
    """Raise InputError for a workload whose requests do not follow a rate that changes at any moment."""
    if workload.arrivals.process not in LAWS:
        msg = f"load by hand has arrivals {', '.join(LAWS)}, not {workload.arrivals.process}; {_WAY_OUT}"
        raise InputError(msg)
    if workload.prompts.conversation is not None:
        msg = (
            "load by hand sets the rate of requests, and in a conversation the answers decide when later turns are "
            f"sent; {_WAY_OUT}"
        )
        raise InputError(msg)
