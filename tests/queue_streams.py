"""Know a simulated service whose truth is known: a queue in front of a batch of fixed size.

A request waits for one of SLOTS places, is prefilled, and decodes its tokens at a fixed pace: TTFT = wait + prefill.
Arrays are (trials, requests), seconds. `rho` is offered work over capacity, so rho = 1 saturates.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SLOTS = 8
PREFILL_S, TOKEN_S, MEAN_TOKENS, CV_TOKENS = 0.1, 0.0095, 200.0, 0.8
CAPACITY_PER_S = SLOTS / (PREFILL_S + TOKEN_S * MEAN_TOKENS)


class Stream(NamedTuple):
    """Arrival times, TTFT and E2E of each request."""

    arrive: Floats
    ttft: Floats
    e2e: Floats


def gaps(rng: np.random.Generator, trials: int, n: int, per_s: float, cv: float = 1.0) -> Floats:
    """Return gamma gaps between arrivals; cv 1 is Poisson."""
    shape = 1 / cv**2
    return rng.gamma(shape, 1 / shape, (trials, n)) / per_s


def service(rng: np.random.Generator, trials: int, n: int) -> tuple[Floats, Floats]:
    """Return prefill and decode seconds; answer lengths are log-normal."""
    spread = np.log(1 + CV_TOKENS**2)
    tokens = rng.lognormal(np.log(MEAN_TOKENS) - spread / 2, np.sqrt(spread), (trials, n))
    return PREFILL_S * rng.lognormal(-0.125, 0.5, (trials, n)), tokens * TOKEN_S


def waits(arrive: Floats, serve: Floats) -> Floats:
    """Return how long each request waits, first come first served, from an empty start."""
    free = np.zeros((len(arrive), SLOTS))
    rows = np.arange(len(arrive))
    found = np.empty_like(arrive)
    for index in range(arrive.shape[1]):
        place = free.argmin(axis=1)
        start = np.maximum(arrive[:, index], free[rows, place])
        found[:, index] = start - arrive[:, index]
        free[rows, place] = start + serve[:, index]
    return found


def stream(rng: np.random.Generator, trials: int, n: int, rho: float, *, warm: int = 1_000, cv: float = 1.0) -> Stream:
    """Return requests of a stationary service; the first `warm` are left out."""
    arrive = np.cumsum(gaps(rng, trials, n + warm, rho * CAPACITY_PER_S, cv), axis=1)
    prefill, decode = service(rng, trials, n + warm)
    ttft = waits(arrive, prefill + decode) + prefill
    return Stream(arrive[:, warm:], ttft[:, warm:], (ttft + decode)[:, warm:])
