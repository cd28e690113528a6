"""What a service's list of models means for a run."""

import json
from pathlib import Path

import pytest

from servebench.core.errors import InputError
from servebench.core.target import parse_target
from servebench.inquiry.call import Page
from servebench.inquiry.models import Found, Question, model_ids
from servebench.inquiry.models import judge as judge_page
from servebench.inquiry.secrets import read_secrets
from servebench.wire.approach import Approach

TARGET = parse_target("http://10.0.4.7:8000/v1")


def _reply(status: int = 200, body: object = None, location: str | None = None) -> Page:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Page(status=status, headers={} if location is None else {"location": location}, body=raw)


def judge(page: Page, *, model: str | None, has_key: bool) -> Found:
    headers = {"Authorization": "Bearer sk-canary"} if has_key else {}
    return judge_page(Question(approach=Approach(target=TARGET, headers=headers), model=model), page)


def _models(*names: str) -> Page:
    return _reply(body={"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def test_the_only_served_model_is_taken_when_none_is_asked_for() -> None:
    found = judge(_models("llama"), model=None, has_key=False)
    assert found.model == "llama"
    assert found.notes == ("Model: llama, the only one served.",)


def test_a_served_model_needs_no_word() -> None:
    assert judge(_models("a", "b"), model="b", has_key=False) == Found(model="b")


def test_an_unknown_model_is_answered_with_the_list_of_served_ones() -> None:
    with pytest.raises(InputError, match=r'"llama"\. It serves: a, b\.\n  try: --model a'):
        judge(_models("a", "b"), model="llama", has_key=False)


def test_several_models_and_none_asked_for_is_a_question() -> None:
    with pytest.raises(InputError, match=r"serves 2 models and none was asked for: a, b"):
        judge(_models("a", "b"), model=None, has_key=False)


def test_a_long_list_of_models_is_cut() -> None:
    with pytest.raises(InputError, match=r"m9 and 20 more"):
        judge(_models(*(f"m{i}" for i in range(30))), model="x", has_key=False)


@pytest.mark.parametrize("status", [401, 403])
def test_a_missing_key_is_told_apart_from_a_wrong_one(status: int) -> None:
    with pytest.raises(InputError, match=rf"wants a key \({status}\) and none is set"):
        judge(_reply(status), model="m", has_key=False)
    with pytest.raises(InputError, match=rf"refuses the key that is set \({status}\)"):
        judge(_reply(status), model="m", has_key=True)


@pytest.mark.parametrize(
    "reply", [_reply(404), _reply(405), _reply(body=b"<html>"), _reply(body={"data": "x"}), _reply(body=[])]
)
def test_a_server_without_a_list_of_models_is_loaded_all_the_same_with_a_note(reply: Page) -> None:
    found = judge(reply, model="m", has_key=False)
    assert found.model == "m"
    assert "not checked" in found.notes[0]


def test_a_server_that_is_not_ready_is_not_loaded() -> None:
    with pytest.raises(InputError, match=r"answered 503: is the model still loading"):
        judge(_reply(503), model="m", has_key=False)


def test_a_redirect_names_where_it_goes_without_its_query() -> None:
    reply = _reply(308, location="https://llm.example/v1/models?token=sk-canary")
    with pytest.raises(InputError, match=r"try: --url https://llm\.example$") as caught:
        judge(reply, model="m", has_key=False)
    assert "canary" not in str(caught.value)


def test_a_deep_json_is_no_model_list() -> None:
    assert model_ids(b"[" * 100_000) == ()


def test_the_key_comes_from_a_file_first_and_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-1\n")
    assert read_secrets({"SERVEBENCH_API_KEY_FILE": str(file), "SERVEBENCH_API_KEY": "sk-2"}).api_key == "sk-1"
    assert read_secrets({"SERVEBENCH_API_KEY": "sk-2"}).api_key == "sk-2"
    assert read_secrets({}).api_key is None


def test_a_key_that_no_header_may_hold_is_refused_unseen(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_secrets({"SERVEBENCH_API_KEY": "sk-canary\nX: y"})
    assert "canary" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_secrets({"SERVEBENCH_API_KEY_FILE": str(tmp_path / "none")})
