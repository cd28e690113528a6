"""By which way a service is asked: headers of several lists, the key, the proxy."""

import pytest

from servebench.core.errors import InputError
from servebench.core.headers import header_fault, may_be_secret, merged
from servebench.core.target import parse_target
from servebench.inquiry.secrets import Secrets, read_secrets
from servebench.inquiry.way import approach_to
from servebench.wire.approach import Approach
from servebench.wire.endpoints import ENDPOINTS


def way(url: str, secrets: Secrets, *, endpoint: str = "openai-chat", proxy: str | None = None) -> Approach:
    return approach_to(parse_target(url), ENDPOINTS[endpoint], secrets, headers={"X-Team": "file"}, proxy=proxy)


def lines(data: bytes) -> list[str]:
    return data.decode("latin-1").split("\r\n")


def test_of_equal_names_whatever_their_case_the_last_list_wins() -> None:
    assert merged({"A": "1", "b": "2"}, {"B": "3"}, {"a": "4"}) == {"B": "3", "a": "4"}


def test_the_key_goes_out_once_and_a_header_of_the_environment_replaces_it() -> None:
    secrets = read_secrets({"SERVEBENCH_API_KEY": "k", "SERVEBENCH_HEADERS": "authorization: Token t\nx-team: env"})
    sent = lines(way("http://me:pw@h", secrets).question("/", {}))
    assert [line for line in sent if line.lower().startswith("authorization")] == ["authorization: Token t"]
    assert [line for line in sent if line.lower().startswith("x-team")] == ["x-team: env"]


def test_the_credential_of_the_address_is_sent_where_no_key_is_set() -> None:
    assert "Authorization: Basic bWU6cHc=" in lines(way("http://me:pw@h", Secrets()).question("/", {}))
    keyed = lines(way("http://me:pw@h", Secrets(api_key="k")).question("/", {}))
    assert [line for line in keyed if line.startswith("Authorization")] == ["Authorization: Bearer k"]


def test_a_key_goes_where_the_endpoint_looks_for_it() -> None:
    sent = lines(way("http://h", Secrets(api_key="k"), endpoint="anthropic-messages").question("/v1/models", {}))
    assert {"x-api-key: k", "Authorization: Bearer k", "anthropic-version: 2023-06-01"} <= set(sent)


def test_a_proxy_reads_http_requests_whole_and_gets_its_credential() -> None:
    approach = way("http://h:81/v1", Secrets(proxy="http://me:pw@p:3128"), proxy="http://elsewhere:1")
    sent = lines(approach.question("/v1/models", {}))
    assert (approach.entrance.authority, approach.tunnel()) == ("p:3128", None)
    assert sent[:2] == ["GET http://h:81/v1/models HTTP/1.1", "Host: h:81"]
    assert "Proxy-Authorization: Basic bWU6cHc=" in sent


def test_to_https_a_proxy_opens_a_tunnel_and_sees_no_request() -> None:
    approach = way("https://h", Secrets(), proxy="http://p:3128")
    tunnel = approach.tunnel()
    assert tunnel is not None
    assert tunnel.request.startswith(b"CONNECT h:443 HTTP/1.1\r\n")
    assert lines(approach.question("/v1/models", {}))[0] == "GET /v1/models HTTP/1.1"


def test_a_proxy_that_is_none_is_told_with_its_place_and_without_its_password() -> None:
    with pytest.raises(InputError, match="SERVEBENCH_PROXY") as caught:
        way("http://h", Secrets(proxy="ftp://me:pw-canary@p"))
    assert "canary" not in str(caught.value)


def test_no_secret_shows_in_a_representation() -> None:
    environ = {"SERVEBENCH_API_KEY": "canary", "SERVEBENCH_HEADERS": "a: canary", "SERVEBENCH_PROXY": "http://canary@p"}
    secrets = read_secrets(environ)
    assert "canary" not in repr(secrets)
    assert "canary" not in repr(way("http://u:canary@h/?k=canary", secrets))


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("X-Team", "search", False),
        ("X-Tokens-Wanted", "5", False),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", False),
        ("Authorization", "x", True),
        ("X-Auth-Token", "x", True),
        ("Ocp-Apim-Subscription-Key", "x", True),
        ("CF-Access-Client-Secret", "x", True),
        ("Cookie", "a=b", True),
        ("X-Forwarded", "Bearer abc", True),
        ("X-Any", "sk-abc", True),
    ],
)
def test_a_header_that_looks_like_a_key_is_told_by_name_or_value(name: str, value: str, *, secret: bool) -> None:
    assert may_be_secret(name, value) is secret


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "X-Request-Id", "Accept-Encoding"])
def test_headers_that_frame_or_name_a_request_are_ours(name: str) -> None:
    assert header_fault(name, "x") == "is set by servebench"
