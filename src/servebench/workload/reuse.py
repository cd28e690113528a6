"""Know how much of what a plan sends was sent before: the most that a prefix cache could save."""

import numpy as np

from servebench.workload.lengths import NONE
from servebench.workload.prompts import PromptSet
from servebench.workload.schedule import Schedule


def reuse_of(schedule: Schedule, prompts: PromptSet) -> float | None:
    """Return the share of all input tokens that repeat the beginning of an earlier prompt, with an endless cache.

    Prompts made of a trace's blocks: blocks whose whole chain came before. Others: prompts that repeat whole, and the
    declared shared prefix of the rest. The history of conversations is not counted. None where nothing is sent.
    """
    if not len(schedule):
        return None
    if prompts.blocks is not None:
        return prompts.blocks.reuse(schedule.prompt_id, schedule.input_tokens)
    tokens = schedule.input_tokens.astype(np.float64)
    unknown = np.flatnonzero(schedule.input_tokens == NONE)
    used, where = np.unique(schedule.prompt_id[unknown], return_inverse=True)
    tokens[unknown] = np.array([prompts.weight(int(prompt)) for prompt in used])[where]
    pairs = np.stack([schedule.prompt_id, schedule.input_tokens.astype(np.int64)], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    known = np.ones(len(schedule), dtype=np.float64)
    known[first] = prompts.shared_share
    known[0] = 0.0
    return float((tokens * known).sum() / tokens.sum())
