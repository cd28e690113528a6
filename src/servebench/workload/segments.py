"""Know how shapes of load become rate segments."""

from servebench.workload.model import Diurnal, Segment
from servebench.workload.profiles import normalised, profile_named
from servebench.workload.spec_load import (
    BurstPhase,
    DiurnalPhase,
    RampPhase,
    SoakPhase,
    SpikePhase,
    SteadyPhase,
    StepsPhase,
)

RatePhase = SteadyPhase | StepsPhase | BurstPhase | RampPhase | SpikePhase | DiurnalPhase | SoakPhase


def segments_of(phase: RatePhase) -> tuple[Segment, ...]:
    """Return the rate segments of a shape.

    Steps share a total duration equally, the last one has the odd nanoseconds. Every period of a burst shape begins
    with the base rate and ends with the peak; the last period is cut where the phase ends.
    """
    if isinstance(phase, SteadyPhase | SoakPhase):
        return (_level(phase.duration, phase.rate_per_s),)
    if isinstance(phase, RampPhase):
        return (_line(phase.duration, phase.from_per_s, phase.to_per_s),)
    if isinstance(phase, SpikePhase):
        lengths = (phase.before, phase.length, phase.recovery)
        rates = (phase.base_per_s, phase.peak_per_s, phase.base_per_s)
        return tuple(_level(length, rate) for length, rate in zip(lengths, rates, strict=True))
    if isinstance(phase, DiurnalPhase):
        return diurnal_segments(diurnal_of(phase), phase.duration)
    return _steps(phase) if isinstance(phase, StepsPhase) else _bursts(phase)


def diurnal_of(phase: DiurnalPhase) -> Diurnal:
    """Return the day of a diurnal phase, its profile by values."""
    if isinstance(phase.profile, str):
        profile = profile_named(phase.profile)
    else:
        profile = tuple(float(part) for part in phase.profile)
    return Diurnal(
        mean_per_s=float(phase.mean_per_s),
        profile=profile,
        period_ns=phase.period if phase.period is not None else phase.duration,
        start_ns=phase.start,
    )


def diurnal_segments(day: Diurnal, duration_ns: int) -> tuple[Segment, ...]:
    """Return straight lines between the middles of the parts of a day, for `duration_ns` from its start on.

    The mean over a whole period is the mean of the profile: what a line cuts off one part it adds to the next.
    """
    profile = normalised(day.profile)
    parts = len(profile)

    def rate(at_ns: int) -> float:
        place = at_ns / day.period_ns * parts - 0.5
        index = int(place // 1)
        share = place - index
        here, there = profile[index % parts], profile[(index + 1) % parts]
        return day.mean_per_s * (here + share * (there - here))

    segments: list[Segment] = []
    at_ns, end_ns = day.start_ns, day.start_ns + duration_ns
    number = (2 * at_ns * parts // day.period_ns + 1) // 2
    while at_ns < end_ns:
        # Middles stand at (2 number + 1) / 2 parts.
        middle_ns = (2 * number + 1) * day.period_ns // (2 * parts)
        until_ns = min(middle_ns, end_ns)
        if until_ns > at_ns:
            segments.append(_line(until_ns - at_ns, rate(at_ns), rate(until_ns)))
            at_ns = until_ns
        number += 1
    return tuple(segments)


def _level(duration_ns: int, rate_per_s: float, step: int | None = None) -> Segment:
    return Segment(duration_ns=duration_ns, from_per_s=float(rate_per_s), to_per_s=float(rate_per_s), step=step)


def _line(duration_ns: int, from_per_s: float, to_per_s: float) -> Segment:
    return Segment(duration_ns=duration_ns, from_per_s=float(from_per_s), to_per_s=float(to_per_s))


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
