"""The claims that the demo preset makes about itself, in the model's own time."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from servebench.sim.engine import Engine
from servebench.sim.parameters import PRESETS

MS = 1e6
S = 1e9


class Load(NamedTuple):
    arrivals_ns: npt.NDArray[np.float64]
    prompts: npt.NDArray[np.int64]
    answers: npt.NDArray[np.int64]


def poisson_load(rate_per_s: float, count: int) -> Load:
    rng = np.random.default_rng(1)
    return Load(
        arrivals_ns=np.cumsum(rng.exponential(S / rate_per_s, count)),
        prompts=np.clip(rng.lognormal(np.log(400), 0.9, count), 20, 2_000).astype(np.int64),
        answers=np.clip(rng.lognormal(np.log(70), 0.6, count), 4, 192).astype(np.int64),
    )


class Served(NamedTuple):
    ttft_ns: npt.NDArray[np.float64]
    tpot_ns: npt.NDArray[np.float64]
    rate_per_s: float


def serve(load: Load) -> Served:
    """Run a load through the demo engine, with time advancing by the steps."""
    engine = Engine(PRESETS["demo"], seed=0)
    count, next_in, now = len(load.arrivals_ns), 0, 0.0
    first, last = np.full(count, np.nan), np.full(count, np.nan)
    while next_in < count or engine.has_work:
        if not engine.has_work:
            now = max(now, load.arrivals_ns[next_in])
        while next_in < count and load.arrivals_ns[next_in] <= now:
            prompt, answer = int(load.prompts[next_in]), int(load.answers[next_in])
            engine.add(next_in, prompt_tokens=prompt, answer_tokens=answer)
            next_in += 1
        result = engine.step()
        now += result.duration_ns
        for sequence, position in result.emitted:
            last[sequence] = now
            if position == 0:
                first[sequence] = now
    return Served(
        ttft_ns=first - load.arrivals_ns,
        tpot_ns=(last - first) / (load.answers - 1),
        rate_per_s=count / (now / S),
    )


def test_the_demo_engine_answers_in_40_to_60_ms_and_15_to_25_ms_per_token_when_lightly_loaded() -> None:
    served = serve(poisson_load(rate_per_s=5, count=300))
    assert 40 * MS < np.median(served.ttft_ns) < 60 * MS
    assert 15 * MS < np.median(served.tpot_ns) < 25 * MS


def test_the_demo_engine_saturates_between_12_and_18_requests_per_second() -> None:
    assert 12 < serve(poisson_load(rate_per_s=40, count=600)).rate_per_s < 18


def test_a_burst_queues_in_front_of_the_demo_engine() -> None:
    calm, burst = serve(poisson_load(rate_per_s=8, count=200)), serve(poisson_load(rate_per_s=25, count=200))
    assert np.percentile(burst.ttft_ns, 95) > 10 * np.percentile(calm.ttft_ns, 95)


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_seat_of_a_preset_can_hold_a_prompt_of_a_block(name: str) -> None:
    assert PRESETS[name].max_num_seqs <= PRESETS[name].kv_blocks
