"""Who may use the web page: where name and password come from, and what they admit."""

from pathlib import Path

import pytest

from servebench.core.errors import InputError
from servebench.loadgen.desk.web_login import Login, read_login


def test_name_and_password_come_from_the_variable_and_a_password_may_hold_a_colon() -> None:
    assert read_login({"SERVEBENCH_WEB_LOGIN": "eve:pass:word"}) == Login("eve", "pass:word")


def test_a_file_wins_and_its_line_end_is_not_part_of_the_password(tmp_path: Path) -> None:
    path = tmp_path / "login"
    path.write_text("eve:geheim\n", encoding="utf-8")
    environ = {"SERVEBENCH_WEB_LOGIN": "a:b", "SERVEBENCH_WEB_LOGIN_FILE": str(path)}
    assert read_login(environ) == Login("eve", "geheim")


@pytest.mark.parametrize("text", ["", "eve", "eve:", ":pw-canary"])
def test_a_login_without_both_is_refused_with_the_way_out_and_without_the_value(text: str) -> None:
    with pytest.raises(InputError, match="SERVEBENCH_WEB_LOGIN=NAME:PASSWORD") as refused:
        read_login({"SERVEBENCH_WEB_LOGIN": text})
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "password", "admitted"),
    [("eve", "pässword", True), ("eve", "password", False), ("adam", "pässword", False), ("", "", False)],
)
def test_both_must_be_right(name: str, password: str, admitted: bool) -> None:
    assert Login("eve", "pässword").admits(name, password) is admitted
