"""What the environment says, and that secrets do not show."""

from pathlib import Path

import pytest

from servebench.core.errors import InputError
from servebench.loadgen.settings import Settings, full_url


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_environment({})
    assert settings.workload_path is None
    assert settings.out == Path("runs").absolute()
    assert settings.drain_ns == 30_000_000_000


def test_the_key_file_wins_and_is_stripped(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("canary-1\n", encoding="utf-8")
    settings = Settings.from_environment({"SERVEBENCH_API_KEY_FILE": str(file), "SERVEBENCH_API_KEY": "canary-2"})
    assert settings.secrets.api_key == "canary-1"


def test_secrets_are_kept_out_of_the_representation() -> None:
    settings = Settings.from_environment({"SERVEBENCH_API_KEY": "canary-1", "SERVEBENCH_URL": "http://u:canary-2@h"})
    assert "canary" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"), [("SERVEBENCH_DRAIN_S", "soon"), ("SERVEBENCH_API_KEY_FILE", "/does/not/exist")]
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(InputError, match=name):
        Settings.from_environment({name: value})


@pytest.mark.parametrize(
    ("shown", "secret", "used"),
    [
        ("http://h:1", "http://u:p@h:1?k=1", "http://u:p@h:1?k=1"),
        ("http://h:2", "http://u:p@h:1", "http://h:2"),
        (None, "http://u:p@h:1", "http://u:p@h:1"),
        ("http://h:2", None, "http://h:2"),
    ],
)
def test_the_full_address_is_used_only_where_the_shown_one_is_the_same(
    shown: str | None, secret: str | None, used: str
) -> None:
    assert full_url(shown, secret) == used


def test_no_address_at_all_says_how_to_give_one() -> None:
    with pytest.raises(InputError, match="--host"):
        full_url(None, None)
