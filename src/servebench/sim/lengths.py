"""Know how long an answer gets: what the request fixes, or a natural length drawn from its content."""

from typing import Literal, NamedTuple

import numpy as np

from servebench.sim.api import Generation

AnswerRule = Literal["exact", "natural"]

_NATURAL_STREAM = 2
_MEDIAN_TOKENS = 160
_SIGMA = 0.8


class AnswerPlan(NamedTuple):
    """How many tokens an answer will have and why it will end."""

    tokens: int
    finish_reason: Literal["length", "stop"]


def plan_answer(asked: Generation, rule: AnswerRule, *, seed: int, max_model_len: int) -> AnswerPlan:
    """Return the length of the answer to `asked`; equal requests under one seed get equal lengths.

    `exact`: max_tokens where the request has one. `natural`: the smaller of max_tokens and the natural length, unless
    the request says ignore_eos. Without max_tokens the natural length holds in both, capped by the context.
    """
    room = max_model_len - asked.prompt.tokens
    limit = room if asked.max_tokens is None else asked.max_tokens
    if asked.max_tokens is not None and (rule == "exact" or asked.ignore_eos):
        return AnswerPlan(limit, "length")
    if asked.ignore_eos:
        return AnswerPlan(room, "length")
    natural = max(asked.min_tokens, natural_tokens(asked, seed))
    return AnswerPlan(limit, "length") if natural >= limit else AnswerPlan(natural, "stop")


def natural_tokens(asked: Generation, seed: int) -> int:
    """Return the log-normal natural length (median 160, sigma 0.8) that content and seed give this request."""
    content = int.from_bytes(asked.prompt.digest, "little")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_NATURAL_STREAM, content)))
    return max(1, round(_MEDIAN_TOKENS * float(np.exp(_SIGMA * rng.standard_normal()))))
