"""Know the few distributions that intervals need, by the standard library's means: normal, Student's t, beta.

Accurate to about 1e-10, which tests check against exact binomial sums and closed forms.
"""

import math
from statistics import NormalDist

_TINY = 1e-300


def normal_above(z: float) -> float:
    """Return P(Z > z) of a standard normal variable."""
    return 0.5 * math.erfc(z / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """Return the value below which a standard normal variable lies with probability p, 0 < p < 1."""
    return NormalDist().inv_cdf(p)


def beta_below(x: float, a: float, b: float) -> float:
    """Return P(X <= x) of a beta(a, b) variable, the regularised incomplete beta function; a, b > 0."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    front = math.exp(_log_front(x, a, b))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _continued(x, a, b) / a
    return 1.0 - front * _continued(1.0 - x, b, a) / b


def _log_front(x: float, a: float, b: float) -> float:
    """Return log of x^a (1 - x)^b / B(a, b), which is x (1 - x) times the density."""
    return math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)


def _continued(x: float, a: float, b: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    found = d
    for m in range(1, 10_000):
        end = a + 2 * m
        step = 1.0
        for top in (m * (b - m) * x / ((end - 1.0) * end), -(a + m) * (a + b + m) * x / (end * (end + 1.0))):
            d = 1.0 / _away(1.0 + top * d)
            c = _away(1.0 + top / c)
            step = c * d
            found *= step
        if abs(step - 1.0) < 1e-15:
            break
    return found


def _away(value: float) -> float:
    return value if value > _TINY or value < -_TINY else _TINY


def beta_quantile(p: float, a: float, b: float) -> float:
    """Return x with P(X <= x) = p of a beta(a, b) variable, 0 < p < 1: Newton's steps, halving where one leaves."""
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):
        above = beta_below(x, a, b) - p
        if above < 0.0:
            low = x
        else:
            high = x
        density = math.exp(_log_front(x, a, b)) / (x * (1.0 - x))
        after = x - above / density if density > 0.0 else low
        if not low < after < high:
            after = 0.5 * (low + high)
        if abs(after - x) <= 1e-15 * x or after in (low, high):
            return after
        x = after
    return x


def student_quantile(p: float, df: float) -> float:
    """Return the value below which Student's t with df degrees of freedom lies with probability p, 0 < p < 1."""
    if p == 0.5:
        return 0.0
    x = beta_quantile(2.0 * min(p, 1.0 - p), 0.5 * df, 0.5)
    size = math.sqrt(df * (1.0 - x) / x)
    return size if p > 0.5 else -size


def student_above(t: float, df: float) -> float:
    """Return P(T > t) of Student's t with df degrees of freedom."""
    tail = 0.5 * beta_below(df / (df + t * t), 0.5 * df, 0.5)
    return tail if t >= 0 else 1.0 - tail
