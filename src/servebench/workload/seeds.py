"""Know how one seed becomes independent generators: one for each purpose and part of it."""

import numpy as np

ARRIVALS, PROMPTS, LENGTHS, TURNS, THINK, SERVEGEN, SPREAD, INPUTS, OUTPUTS = range(9)
"""Purposes: the first word of a spawn key. Part of the reproducible form; never renumber."""


def generator(seed: int, purpose: int, part: int) -> np.random.Generator:
    """Return the generator of one purpose and one part (phase, epoch or block) of a workload."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(purpose, part))))
