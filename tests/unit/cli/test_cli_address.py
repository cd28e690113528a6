"""What --url may be, and how little of it is shown."""

import base64

import pytest

from servebench.cli.address import parse_address, redact
from servebench.core.errors import InputError


def test_userinfo_and_query_are_kept_for_the_server_and_never_shown() -> None:
    address = parse_address("http://user:pw-canary-41@127.0.0.1:8001/v1?api-key=sk-canary-42")
    assert address.shown == "http://127.0.0.1:8001/v1"
    assert address.endpoint("/v1/models") == "/v1/models?api-key=sk-canary-42"
    assert address.basic == "Basic " + base64.b64encode(b"user:pw-canary-41").decode()


@pytest.mark.parametrize(
    ("url", "place", "target"),
    [
        ("http://h", "h:80", "/v1/models"),
        ("https://h/", "h:443", "/v1/models"),
        ("http://h:8000/v1/", "h:8000", "/v1/models"),
        ("http://h:8000/api", "h:8000", "/api/v1/models"),
        ("http://h:8000/v1/chat/completions", "h:8000", "/v1/models"),
        ("http://[::1]:9", "[::1]:9", "/v1/models"),
    ],
)
def test_an_address_gives_host_port_and_path_without_writing_v1_twice(url: str, place: str, target: str) -> None:
    address = parse_address(url)
    assert (address.place, address.endpoint("/v1/models")) == (place, target)


@pytest.mark.parametrize(
    "url", ["htp:/127.0.0.1", "127.0.0.1:8000", "ftp://h", "http://", "http://h:99999", "http://a b", ""]
)
def test_anything_else_is_refused_with_a_form_that_works(url: str) -> None:
    with pytest.raises(InputError, match=r"try: --url http://"):
        parse_address(url)


def test_the_way_out_keeps_the_host_that_was_meant() -> None:
    with pytest.raises(InputError, match=r"--url http://127\.0\.0\.1:8000$"):
        parse_address("127.0.0.1:8000")


@pytest.mark.parametrize(
    "url", ["htp://user:pw-canary@h/?k=sk-canary", "user:pw-canary@h?k=sk-canary", "x://pw-canary@h@h2"]
)
def test_a_refusal_holds_no_secret(url: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_address(url)
    assert "canary" not in str(caught.value)


def test_redacting_a_command_line_leaves_its_other_words() -> None:
    url = "http://u:secret@h:1/?key=s"
    assert redact(f"--url={url}", url) == "--url=http://h:1"
    assert redact("--model", url) == "--model"
