"""A soak of 24 hours, planned: as many arrivals in each hour as its curve asks for, and the same for everybody."""

import numpy as np

from servebench.workload.load import parse_workload
from servebench.workload.schedule import plan

PER_HOUR = [3, 2, 1, 1, 1, 1, 2, 4, 8, 10, 12, 12, 11, 12, 12, 11, 10, 9, 8, 8, 7, 6, 5, 4]
MEAN_PER_S = 4
HOUR_NS = 3600 * 10**9
DAY = f"""
name: day
seed: 11
prompts: {{source: {{kind: mt-bench}}}}
load:
  kind: open
  arrivals: {{process: poisson}}
  phases:
    - {{name: day, shape: diurnal, mean_per_s: {MEAN_PER_S}, profile: {PER_HOUR}, period: 24h, duration: 24h}}
"""


def test_a_day_of_24_hours_follows_its_profile_in_each_hour_and_is_the_same_each_time() -> None:
    day = parse_workload(DAY, "day.yaml")
    schedule = plan(day)
    total = MEAN_PER_S * 3600 * 24
    hours = np.bincount(schedule.due_ns // HOUR_NS)
    asked = np.array(PER_HOUR) / sum(PER_HOUR) * total
    assert len(hours) == 24
    assert np.all(np.diff(schedule.due_ns) >= 0)
    # Five standard deviations of Poisson counts, and the curve runs from the middle of one hour to that of the next.
    bend = np.abs(np.roll(asked, 1) - 2 * asked + np.roll(asked, -1)) / 8
    assert (np.abs(hours - asked) < 5 * np.sqrt(asked) + bend + 1).all(), list(zip(hours, asked.round(), strict=True))
    assert abs(len(schedule) - total) < 5 * np.sqrt(total)
    assert plan(day).schedule_hash == schedule.schedule_hash
