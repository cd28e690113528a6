"""Know how shapes of load become rate segments."""

from servebench.workload.model import Segment
from servebench.workload.spec import BurstPhase, SteadyPhase, StepsPhase

RatePhase = SteadyPhase | StepsPhase | BurstPhase


def segments_of(phase: RatePhase) -> tuple[Segment, ...]:
    """Return the rate segments of a shape.

    Steps share a total duration equally, the last one has the odd nanoseconds. Every period of a burst shape begins
    with the base rate and ends with the peak; the last period is cut where the phase ends.
    """
    if isinstance(phase, SteadyPhase):
        return (_level(phase.duration, phase.rate_per_s),)
    if isinstance(phase, StepsPhase):
        return _steps(phase)
    return _bursts(phase)


def _level(duration_ns: int, rate_per_s: float, step: int | None = None) -> Segment:
    return Segment(duration_ns=duration_ns, from_per_s=float(rate_per_s), to_per_s=float(rate_per_s), step=step)


def _steps(phase: StepsPhase) -> tuple[Segment, ...]:
    count = len(phase.rates_per_s)
    total_ns = phase.duration if phase.duration is not None else (phase.step_duration or 0) * count
    each_ns, odd_ns = divmod(total_ns, count)
    durations = [each_ns] * (count - 1) + [each_ns + odd_ns]
    pairs = zip(durations, phase.rates_per_s, strict=True)
    return tuple(_level(duration_ns, rate, step) for step, (duration_ns, rate) in enumerate(pairs))


def _bursts(phase: BurstPhase) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    left_ns = phase.duration
    while left_ns > 0:
        for duration_ns, rate in ((phase.every - phase.length, phase.base_per_s), (phase.length, phase.peak_per_s)):
            if left_ns > 0:
                segments.append(_level(min(duration_ns, left_ns), rate))
                left_ns -= duration_ns
    return tuple(segments)
