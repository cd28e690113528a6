"""Print how often the intervals of docs/methods.md cover, refuse and are wrong, on services whose truth is known.

    python -m tests.bench.bench_methods [TRIALS] [TABLE]

2,000 trials take 8 minutes of CPU on one core; the default of 200 one.
"""

import sys
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from tests.queue_streams import CAPACITY_PER_S, gaps, service, stream, waits

from servebench.analysis.compare.paired import relative
from servebench.analysis.saturation import departure, plateau_interval
from servebench.analysis.steady import guarded_cut
from servebench.metrics.intervals import quantile_interval

Floats = npt.NDArray[np.float64]
QUANTILES = (0.5, 0.9, 0.95, 0.99)


def percentiles(rng: np.random.Generator, trials: int) -> Iterator[str]:
    """Yield coverage of the intervals given / runs given one / runs with a wrong one, in percent."""
    yield "percentiles: covered of those given / given / wrong of all, %"
    for rho, cv in ((0.3, 1.0), (0.7, 1.0), (0.7, 2.0), (0.9, 1.0)):
        runs = [stream(rng, 100, 20_000, rho, warm=4_000, cv=cv).ttft for _ in range(6)]
        truth = np.mean([np.quantile(run, QUANTILES) for run in runs], axis=0)
        for n in (1_000, 10_000):
            samples = stream(rng, trials, n, rho, cv=cv).ttft
            cells = [coverage(samples, q, float(value)) for q, value in zip(QUANTILES, truth, strict=True)]
            yield f"  rho {rho} CV {cv:g} n {n:6,}: " + "  ".join(cells)


def coverage(samples: Floats, q: float, truth: float) -> str:
    found = [quantile_interval(x, q) for x in samples]
    given = [item for item in found if item.lo is not None and item.hi is not None]
    hit = sum((item.lo or 0) <= truth <= (item.hi or 0) for item in given)
    wrong = len(given) - hit
    share = f"{100 * hit / len(given):.0f}" if given else "-"
    return f"p{100 * q:g} {share}/{100 * len(given) / len(found):.0f}/{100 * wrong / len(found):.0f}"


def comparisons(rng: np.random.Generator, trials: int) -> Iterator[str]:
    """Yield in how many comparisons of five pairs the systems are said to differ."""
    yield "compare, p95 E2E, 5 pairs of 1,000 requests, run flicker 2 %: says differs, %"
    for slower in (1.0, 1.02, 1.05, 1.10):
        arms: tuple[list[Floats], list[Floats]] = ([], [])
        for _ in range(5):
            at = np.cumsum(gaps(rng, trials, 1_500, 0.7 * CAPACITY_PER_S), axis=1)
            parts = service(rng, trials, 1_500)
            for arm, factor in zip(arms, (1.0, slower), strict=True):
                speed = factor * np.exp(rng.normal(0, 0.02, (trials, 1)))
                prefill, decode = (part * rng.lognormal(0, 0.05, part.shape) * speed for part in parts)
                e2e = waits(at, prefill + decode) + prefill + decode
                arm.append(np.quantile(e2e[:, 500:], 0.95, axis=1))
        found = [relative(a, b) for a, b in zip(np.array(arms[0]).T, np.array(arms[1]).T, strict=True)]
        apart = [item.lo is not None and item.hi is not None and (item.lo > 0 or item.hi < 0) for item in found]
        yield f"  service x{slower:.2f}: {100 * np.mean(apart):.1f}"


def plateaus(rng: np.random.Generator, trials: int) -> Iterator[str]:
    """Yield bias, spread and coverage of the saturation point of a staircase."""
    yield "saturation, levels 0.5 to 1.3 of capacity: answered, bias, sd, covered, %"
    for seconds in (60, 180, 600):
        found = [item for _ in range(trials) if (item := climb(rng, seconds)) is not None]
        centres = np.array([centre for centre, _, _ in found]) / CAPACITY_PER_S
        covered = [lo <= CAPACITY_PER_S <= hi for _, lo, hi in found]
        yield (
            f"  {seconds:3d} s a level: {100 * len(found) / trials:.0f}  {100 * (centres.mean() - 1):+.1f}  "
            f"{100 * centres.std():.1f}  {100 * np.mean(covered):.0f}"
        )


def climb(rng: np.random.Generator, seconds: float) -> tuple[float, float, float] | None:
    rates = np.arange(0.5, 1.31, 0.1) * CAPACITY_PER_S
    counts = [int(rate * seconds) for rate in rates]
    between = [gaps(rng, 1, n, rate) for n, rate in zip(counts, rates, strict=True)]
    at = np.cumsum(np.concatenate(between, axis=1), axis=1)
    prefill, decode = service(rng, *at.shape)
    end = np.sort((at + waits(at, prefill + decode) + prefill + decode)[0])
    offered, achieved = [], []
    for last, n in zip(np.cumsum(counts), counts, strict=True):
        start, stop = at[0, last - n], at[0, last - 1]
        cuts = np.linspace(start + 0.25 * (stop - start), stop, 7)
        offered.append(np.diff(np.searchsorted(at[0], cuts)) / np.diff(cuts))
        achieved.append(np.diff(np.searchsorted(end, cuts)) / np.diff(cuts))
    rows = np.array(offered), np.array(achieved)
    return None if departure(rows[0].mean(axis=1), rows[1].mean(axis=1)) is None else plateau_interval(*rows)


def settlings(rng: np.random.Generator, trials: int) -> Iterator[str]:
    """Yield in how many runs the steady-state check marks the verdict."""
    yield "steady-state check: marked, %"
    for rho in (0.3, 0.5, 0.7, 0.9):
        cuts = [guarded_cut(x) for x in stream(rng, trials, 2_000, rho).e2e]
        yield f"  steady, rho {rho}: {100 * np.mean([cut is None or cut > 200 for cut in cuts]):.1f}"
    at = np.cumsum(gaps(rng, trials, 1_000, 0.5 * CAPACITY_PER_S), axis=1)
    prefill, decode = (part * (1 + np.exp(-at / 60)) for part in service(rng, *at.shape))
    cuts = [guarded_cut(x) for x in waits(at, prefill + decode) + prefill + decode]
    yield f"  twice as slow at first: {100 * np.mean([cut is None or cut > 100 for cut in cuts]):.1f}"


TABLES = (percentiles, comparisons, plateaus, settlings)


def main(trials: int, names: Sequence[str]) -> None:
    """Print the named tables, all without a name."""
    for table in TABLES:
        if not names or table.__name__ in names:
            for line in table(np.random.default_rng(20_260_903), trials):
                print(line, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:])
