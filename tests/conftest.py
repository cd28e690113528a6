"""Know what holds for every test of the suite."""

import pytest
from hypothesis import HealthCheck, settings


def pytest_configure(config: pytest.Config) -> None:
    """Take the wall clock out of hypothesis: on a busy machine a slow draw is no fault of the code."""
    del config
    settings.register_profile("servebench", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("servebench")
