"""Know how one seed becomes independent generators: one for each purpose and part of it."""

import numpy as np

ARRIVALS, PROMPTS, LENGTHS, TURNS, THINK, SERVEGEN, SPREAD, INPUTS, OUTPUTS, LEAVING, TASKS = range(11)
"""Purposes: the first word of a spawn key. Part of the reproducible form; never renumber."""


def chosen(seed: int, purpose: int, seq: int, share: float) -> bool:
    """Return whether a request is among a share of all, the same on every worker; costs some 15 us below 1."""
    return share >= 1 or bool(generator(seed, purpose, seq).random() < share)


def generator(seed: int, purpose: int, part: int) -> np.random.Generator:
    """Return the generator of one purpose and one part (phase, epoch or block) of a workload."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, part))))
