"""What load generators take from their environment because it may be secret."""

from pathlib import Path

import pytest

from servebench.core.errors import InputError
from servebench.loadgen.settings import Settings


def test_headers_come_one_a_line() -> None:
    settings = Settings.from_environment({"SERVEBENCH_HEADERS": "api-key: abc\n\nX-Team:  a: b \n"})
    assert dict(settings.secrets.headers) == {"api-key": "abc", "X-Team": "a: b"}


def test_headers_may_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("api-key: abc\n", encoding="utf-8")
    assert dict(Settings.from_environment({"SERVEBENCH_HEADERS_FILE": str(path)}).secrets.headers) == {"api-key": "abc"}


def test_what_may_be_secret_is_not_in_the_settings_own_text() -> None:
    settings = Settings.from_environment(
        {
            "SERVEBENCH_HEADERS": "api-key: canary-1",
            "SERVEBENCH_PROXY": "http://me:canary-2@proxy:3128",
            "SERVEBENCH_API_KEY": "canary-3",
        }
    )
    assert settings.secrets.proxy == "http://me:canary-2@proxy:3128"
    assert "canary" not in repr(settings)


@pytest.mark.parametrize(
    "line", ["canary-secret", "a b: canary-secret", "Content-Length: canary-secret", "X-A: canary-secret\x01"]
)
def test_a_line_that_is_no_header_is_told_by_number_without_its_value(line: str) -> None:
    with pytest.raises(InputError) as caught:
        Settings.from_environment({"SERVEBENCH_HEADERS": f"X-Fine: 1\n{line}"})
    assert "line 2" in str(caught.value)
    assert "canary" not in str(caught.value)
