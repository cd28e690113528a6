"""Know how large a plan may be: every process holds it, and a slip in a unit must not fill its memory."""

from collections.abc import Iterable

from servebench.workload.arrivals import expected_count
from servebench.workload.model import Arrivals, Conversation, Phase, Prompts
from servebench.workload.places import Wrong
from servebench.workload.spec_requests import RequestsSpec

MOST_REQUESTS = 20_000_000
"""A plan of so many requests takes about 1.4 GB in every process."""
MOST_EPISODES = 2_000_000


def sizes_against_limits(phases: tuple[Phase, ...], law: Arrivals, talk: Conversation | None) -> list[Wrong]:
    """Return the phases that would plan more than memory holds: requests, or episodes of on/off arrivals."""
    wrongs: list[Wrong] = []
    mean_turns = 1.0 if talk is None else talk.turns.mean or float(talk.turns.high or talk.turns.low)
    own = [phase for phase in phases if phase.warm_per_s is None]
    for index, phase in enumerate(own):
        if phase.replay is not None:
            continue
        requests = expected_count(phase.segments) * mean_turns
        if requests > MOST_REQUESTS:
            message = f"plans about {requests:,.0f} requests; at most {MOST_REQUESTS:,} are possible"
            wrongs.append(Wrong(("load", "phases", index), message))
        for part in _on_off(phase.arrivals or law):
            episodes = 2 * phase.duration_ns / ((part.on_ns or 0) + (part.off_ns or 0))
            if episodes > MOST_EPISODES:
                message = f"has about {episodes:,.0f} on and off episodes; at most {MOST_EPISODES:,} are possible"
                wrongs.append(Wrong(("load", "phases", index), message))
    return wrongs


def lengths_against_prompts(requests: RequestsSpec, prompts: Prompts) -> list[Wrong]:
    """Return that exact lengths are wanted where none is asked for."""
    if requests.lengths != "exact" or prompts.output_tokens.kind != "prompt":
        return []
    message = '"exact" needs prompts.output_tokens, which says how long answers are; e.g. {from: fixed, tokens: 128}'
    return [Wrong(("requests", "lengths"), message)]


def talk_against_closed_load(talk: Conversation | None) -> list[Wrong]:
    """Return what closed users cannot follow: turns that are a trace's rows."""
    if talk is None or talk.turns.law != "trace":
        return []
    message = '"trace" follows the rows of a replay, and closed load replays none; it needs load.kind: replay'
    return [Wrong(("prompts", "conversation", "turns", "from"), message)]


def _on_off(law: Arrivals) -> Iterable[Arrivals]:
    """Return the on/off laws in a law."""
    if law.process == "onoff":
        return [law]
    return [client.arrivals for client in law.clients if client.arrivals.process == "onoff"]
