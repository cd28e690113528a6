"""Know the days of real services: how the rate of each hour stands to the mean rate.

Sources: ServeGen (Alibaba Cloud Model Studio, arXiv 2505.09999) for m-small, m-large and deepseek-r1; RAGPulse (arXiv
2511.12979), its requests of four days counted by the hour of the clock.
"""

_M_SMALL = (
    0.84, 0.71, 0.73, 0.68, 0.71, 0.66, 0.68, 0.85, 1.02, 1.05, 1.13, 1.09,
    1.06, 1.07, 1.06, 1.05, 1.09, 1.08, 1.01, 1.23, 1.46, 1.40, 1.27, 1.06,
)  # fmt: skip
_RAGPULSE = (
    210, 74, 47, 18, 15, 16, 22, 63, 124, 189, 220, 258,
    251, 316, 301, 300, 246, 238, 276, 314, 196, 219, 270, 171,
)  # fmt: skip


def _flattened(profile: tuple[float, ...], peak_over_trough: float) -> tuple[float, ...]:
    """Return a profile with the same hours of peak and trough whose ratio is the given one; its mean stays."""
    mean = sum(profile) / len(profile)
    high, low = max(profile) - mean, min(profile) - mean
    gain = mean * (peak_over_trough - 1) / (high - peak_over_trough * low)
    return tuple(mean + gain * (part - mean) for part in profile)


def profile_named(name: str) -> tuple[float, ...]:
    """Return the rates of 24 hours over the mean rate, from midnight on.

    m-small: hours measured over 14 days. m-large and deepseek-r1: of these only the ratio of peak and trough is known
    here (1.5 and 4.9), so they are the hours of m-small brought to that ratio. ragpulse: by the hour over four days,
    peak 21 times the trough. Raises KeyError for another name.
    """
    raw = {
        "m-small": _M_SMALL,
        "m-large": _flattened(_M_SMALL, 1.5),
        "deepseek-r1": _flattened(_M_SMALL, 4.9),
        "ragpulse": tuple(float(count) for count in _RAGPULSE),
    }[name]
    return normalised(raw)


def normalised(profile: tuple[float, ...]) -> tuple[float, ...]:
    """Return a profile over its own mean."""
    mean = sum(profile) / len(profile)
    return tuple(part / mean for part in profile)
