"""Know which workload one probe is: the user's prompts, arrivals and target at one load, after a warm-up."""

import math

import msgspec

from servebench.core.errors import InputError
from servebench.core.units import NS_PER_S
from servebench.workload.model import Closed, Phase, Segment, Workload

WARM_REQUESTS = 150
"""Sent before each probe and left out: the queue needs them to become what it is at that load."""
PROBE, WARM = "probe", "warmup"


def at_rate(workload: Workload, rate_per_s: float, n: int) -> Workload:
    """Return the workload that offers `rate_per_s` until `n` requests after the warm-up are planned, on average."""
    phases = (
        *(phase for phase in workload.phases if phase.warm_per_s is not None),
        _steady(WARM, rate_per_s, WARM_REQUESTS, measured=False),
        _steady(PROBE, rate_per_s, n, measured=True),
    )
    return msgspec.structs.replace(checked(workload), phases=phases, closed=None)


def at_users(workload: Workload, users: int, n: int) -> Workload:
    """Return the workload of `users` who wait for each answer, over `n` requests after the warm-up."""
    think = workload.closed.think if workload.closed else Closed(users=1).think
    closed = Closed(users=users, think=think, requests=n, warmup_requests=min(n, max(WARM_REQUESTS, 2 * users)))
    return msgspec.structs.replace(checked(workload), phases=(), closed=closed)


def checked(workload: Workload) -> Workload:
    """Return the workload; raises InputError where only its own trace can say what is sent."""
    prompts = workload.prompts
    turns = prompts.conversation.turns.law if prompts.conversation else None
    if turns == "trace" or any(source.kind == "trace" for source in prompts.sources):
        msg = (
            "the prompts or conversations of this workload are those of a replayed trace, and a probe offers a steady "
            "rate.\n  try: another source of prompts, with input_tokens and output_tokens {from: trace}"
        )
        raise InputError(msg)
    return workload


def cold(workload: Workload) -> Workload:
    """Return the workload whose prompts no earlier run has put into the server's cache."""
    target = msgspec.structs.replace(workload.target, cache="cold")
    phases = tuple(phase for phase in workload.phases if phase.warm_per_s is None)
    return msgspec.structs.replace(workload, target=target, phases=phases)


def seeded(workload: Workload, number: int) -> Workload:
    """Return the workload with other arrivals and prompts: probes that repeat one draw would share its luck."""
    return msgspec.structs.replace(workload, seed=(workload.seed + number) % 2**63)


def seconds_of(probes: int, n: int, rate_per_s: float) -> float:
    """Return how long so many probes take at a rate, without starts and drains."""
    return probes * (n + WARM_REQUESTS) / rate_per_s


def requests_within(seconds: float, probes: int, rate_per_s: float) -> int:
    """Return how many requests each of `probes` may have so that all take `seconds`.

    Raises InputError where that is too few to say anything.
    """
    n = math.floor(seconds / probes * rate_per_s) - WARM_REQUESTS
    if n < WARM_REQUESTS:
        needed = seconds_of(probes, WARM_REQUESTS, rate_per_s)
        msg = f"{seconds:.0f} s are too short for {probes} probes at {rate_per_s:.3g} req/s"
        msg += f"\n  try: --within {needed:.0f}s"
        raise InputError(msg)
    return n


def _steady(name: str, rate_per_s: float, n: int, *, measured: bool) -> Phase:
    duration_ns = math.ceil(n / rate_per_s * NS_PER_S)
    segment = Segment(duration_ns=duration_ns, from_per_s=rate_per_s, to_per_s=rate_per_s)
    return Phase(name=name, shape="steady", duration_ns=duration_ns, measured=measured, segments=(segment,))
