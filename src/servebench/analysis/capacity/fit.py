"""Know how the share of requests over an objective grows with the load: a logit line over the logarithm of the load.

Near capacity the logit of that share is straight in log load, so that probes on both sides of the border tell where it
lies better than any of them alone. docs/methods.md says how often the answer is within 5 %.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from servebench.metrics.columns import FloatArray

SLOPE = 7.0
"""What the slope is drawn to while few probes say anything of it."""
_RIDGE = 0.5
_SLOPES = (2.0, 25.0)
_STEPS = 25
_OVERLOAD = 0.25
"""Above this share a probe is a transient off the line: it says "too high" and little more."""
_NEAR = 0.1
_SURE = 2.5
_BELOW, _ABOVE = 0.3, 0.2
"""How far beyond the probes the answer may lie while none of them fails, or passes, clearly (log load)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one probe says of one objective: `over` requests of n missed it (failed ones too); `vif` of that series."""

    load: float
    n: int
    over: int
    vif: float

    @property
    def smoothed(self) -> float:
        """The share, never 0."""
        return (self.over + 0.5) / (self.n + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where the share meets its budget: `load`, and the standard error `se` of its logarithm.

    `passed`: the highest load that clearly meets the objective, `failed`: the lowest that clearly does not; None = no
    probe does.
    """

    load: float
    se: float
    passed: float | None
    failed: float | None


def crossing(shares: Sequence[Share], budget: float) -> Crossing:
    """Return where the share over an objective meets `budget` (0.05 for a p95), from the probes made so far.

    Raises ValueError without a probe.
    """
    x = np.log([share.load for share in shares])
    s = np.array([share.smoothed for share in shares])
    n = np.array([share.n for share in shares], dtype=np.float64)
    vif = np.array([share.vif for share in shares])
    near = np.minimum(s, _NEAR)
    dispersion = float((near * vif).sum() / near.sum())
    at, se = _line(x, s, n / dispersion, math.log(budget / (1 - budget)))
    sure = _SURE * np.sqrt(np.maximum(s * (1 - s), 0.4 * budget) * dispersion / n)
    loads = np.array([share.load for share in shares])
    passed = max((float(load) for load in loads[s + sure < budget]), default=None)
    failed = min((float(load) for load in loads[s - sure > budget]), default=None)
    low = float(x.min()) - _BELOW if passed is None else math.log(passed)
    high = float(x.max()) + _ABOVE if failed is None else math.log(failed)
    return Crossing(
        load=math.exp(min(max(at, min(low, high)), max(low, high))),
        se=se,
        passed=passed,
        failed=failed,
    )


def _line(x: FloatArray, s: FloatArray, weight: FloatArray, level: float) -> tuple[float, float]:
    """Return where the fitted line meets `level`, and the standard error of that.

    Quasi-binomial: weights come from the fitted share, since those of the observed one pull the crossing down.
    """
    w = np.where(s > _OVERLOAD, 0.1 * weight, weight)
    centre = float((x * w).sum() / w.sum())
    d = x - centre
    a, b = level, SLOPE
    haa = hab = hbb = det = 1.0
    for _ in range(_STEPS):
        mu = 1 / (1 + np.exp(-np.clip(a + b * d, -8, 8)))
        v = np.maximum(w * mu * (1 - mu), 1e-6)
        ga = float((w * (s - mu)).sum())
        gb = float((w * (s - mu) * d).sum()) - _RIDGE * (b - SLOPE)
        haa, hab, hbb = float(v.sum()), float((v * d).sum()), float((v * d * d).sum()) + _RIDGE
        det = haa * hbb - hab**2
        a += float(np.clip((hbb * ga - hab * gb) / det, -1, 1))
        b = float(np.clip(b + np.clip((haa * gb - hab * ga) / det, -2, 2), *_SLOPES))
    c = (level - a) / b
    return centre + float(np.clip(c, -0.5, 0.5)), math.sqrt((hbb + 2 * c * hab + c**2 * haa) / det) / b
