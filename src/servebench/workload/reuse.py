"""Know how much of what a plan sends was sent before: the most that a prefix cache could save.

Prompts made of a trace's blocks: blocks whose whole chain came before. Others: prompts that repeat whole, and the
declared shared prefix of the rest. The cache is endless and was empty; the history of conversations is not counted,
since the answers in it are not known.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from servebench.workload.lengths import NONE
from servebench.workload.prompts import PromptSet
from servebench.workload.schedule import Schedule

Floats = npt.NDArray[np.float64]


class Reuse(NamedTuple):
    """Input tokens of each request, and how many of them an earlier request had at its beginning; by seq."""

    tokens: Floats
    known: Floats


def reuse_of(schedule: Schedule, prompts: PromptSet) -> float | None:
    """Return the share of all input tokens that were known before; None where nothing is sent."""
    tokens, known = reused(schedule, prompts)
    return float(known.sum() / tokens.sum()) if len(tokens) else None


def reuse_by_phase(schedule: Schedule, prompts: PromptSet) -> dict[str, float | None]:
    """Return the share of each phase's input tokens that were known before, also from earlier phases; None: no request.

    What a server reports as cached should come near it: more means that its cache was not empty, less that it forgot.
    """
    tokens, known = reused(schedule, prompts)
    count = len(schedule.phases)
    sums = (np.bincount(schedule.phase, weights=column, minlength=count) for column in (tokens, known))
    sent, found = (column.tolist() for column in sums)
    return {
        phase.name: found[index] / sent[index] if sent[index] else None for index, phase in enumerate(schedule.phases)
    }


def reused(schedule: Schedule, prompts: PromptSet) -> Reuse:
    """Return for every request how much of it was known before."""
    if prompts.blocks is not None:
        return Reuse(*prompts.blocks.reused(schedule.prompt_id, schedule.input_tokens))
    tokens = schedule.input_tokens.astype(np.float64)
    unknown = np.flatnonzero(schedule.input_tokens == NONE)
    used, where = np.unique(schedule.prompt_id[unknown], return_inverse=True)
    tokens[unknown] = np.array([prompts.weight(int(prompt)) for prompt in used], dtype=np.float64)[where]
    pairs = np.stack([schedule.prompt_id, schedule.input_tokens.astype(np.int64)], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    share = np.ones(len(schedule), dtype=np.float64)
    share[first] = prompts.shared_share
    share[:1] = 0.0
    return Reuse(tokens, tokens * share)
