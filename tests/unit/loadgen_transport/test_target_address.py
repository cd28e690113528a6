"""What a target URL means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servebench.core.errors import InputError
from servebench.core.target import Target, parse_proxy, parse_target, redirected_path, shown_argument
from servebench.loadgen.transport.address import resolve
from servebench.wire.endpoint import Endpoint
from servebench.wire.endpoints import ENDPOINTS

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "netloc", "port", "path"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", 8000, CHAT),
        ("http://127.0.0.1:8000/", "127.0.0.1:8000", 8000, CHAT),
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000", 8000, CHAT),
        ("http://127.0.0.1:8000/v1/", "127.0.0.1:8000", 8000, CHAT),
        ("https://llm.example.com", "llm.example.com", 443, CHAT),
        ("HTTP://LLM.Example.com:80", "llm.example.com", 80, CHAT),
        ("https://llm.example.com:80/gw/v1", "llm.example.com:80", 80, "/gw" + CHAT),
        ("https://llm.example.com/gw", "llm.example.com", 443, "/gw" + CHAT),
        ("http://h/v1/chat/completions", "h", 80, CHAT),
        ("http://h/v1/chat/completions/", "h", 80, CHAT),
        ("http://h/openai/deployments/d/chat/completions?v=1", "h", 80, "/openai/deployments/d/chat/completions?v=1"),
        ("http://h/v1/completions", "h", 80, CHAT),
        ("http://h/v1/messages", "h", 80, CHAT),
        ("http://h/generate_stream", "h", 80, CHAT),
        ("http://h/caf\u00e9/v1?x=\u00e9", "h", 80, "/caf%C3%A9" + CHAT + "?x=%C3%A9"),
        ("http://h/%7Bx%7D", "h", 80, "/%7Bx%7D" + CHAT),
        ("http://h/v1?tier=2&x=%20", "h", 80, CHAT + "?tier=2&x=%20"),
        ("http://[::1]:9000/v1", "[::1]:9000", 9000, CHAT),
        ("http://[::1]", "[::1]", 80, CHAT),
        ("http://[2001:DB8:0::1]:80", "[2001:db8::1]", 80, CHAT),
        ("http://[fe80::1%25eth0]:8000", "[fe80::1]:8000", 8000, CHAT),
        ("http://bücher.example", "xn--bcher-kva.example", 80, CHAT),
        ("  http://h:1  ", "h:1", 1, CHAT),
    ],
)
def test_a_url_gives_host_header_port_and_request_path(url: str, netloc: str, port: int, path: str) -> None:
    target = parse_target(url)
    assert (target.netloc, target.port, target.path(CHAT)) == (netloc, port, path)


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "localhost",
        "ftp://h",
        "http://",
        "http:///v1",
        "http://:80",
        "http://h:0",
        "http://h:65536",
        "http://h:x",
        "http://[::1",
        "http://a b",
        "http://h/\n",
        "http://h\r\nX: y",
        "http://" + "a" * 64 + ".example",
        "",
        "htp:/127.0.0.1",
        "http://h\\@elsewhere",
        "http://[::1]x:80",
        "http://[zz]",
        "http://h:80:90",
        "http://h<x>",
        "http://a..b",
        "http://fa\u00df.example",
        "http://h/#part",
        "http://h#",
        "http://user:p@ss@h/x@y",
    ],
)
def test_a_url_that_names_no_target_is_refused_with_one_that_works(url: str) -> None:
    if url == "http://h/\n":
        url = "http://h/\nx"
    with pytest.raises(InputError, match=r"\n  try: --url http://\S+:[0-9]+$"):
        parse_target(url)


@pytest.mark.parametrize(
    ("url", "way_out"),
    [
        ("127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("localhost", "http://localhost:8000"),
        ("htp:/127.0.0.1", "http://127.0.0.1:8000"),
        ("llm.example.com:443?key=CANARY", "http://llm.example.com:443"),
        ("me:CANARY@llm.example.com", "http://llm.example.com:8000"),
        ("http://", "http://127.0.0.1:8000"),
        ("http://h:99999", "http://127.0.0.1:8000"),
    ],
)
def test_the_way_out_keeps_the_host_that_was_meant(url: str, way_out: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target(url)
    assert str(caught.value).endswith(f"\n  try: --url {way_out}")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("--proxy", "try: --proxy http://127.0.0.1:8000"),
        ("SERVEBENCH_METRICS_URLS", "try: SERVEBENCH_METRICS_URLS=http://127.0.0.1:8000"),
        ("Host:", "try: http://127.0.0.1:8000"),
    ],
)
def test_a_refusal_names_where_the_address_was_given(name: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_target("x", name)
    assert str(caught.value) == f'{name} "x" is no http:// or https:// address.\n  {line}'


@pytest.mark.parametrize(
    ("base", "asked", "path"),
    [
        ("", "/v1/models", "/v1/models"),
        ("/v1", "/v1/models", "/v1/models"),
        ("/gw/v1/chat/completions", "/v1/models", "/gw/v1/models"),
        ("/v1beta/openai/chat/completions", "/v1/models", "/v1beta/openai/models"),
        ("/gw/v1/messages", "/metrics", "/gw/metrics"),
        ("/v1", "/metrics", "/metrics"),
        ("/v1", "/generate_stream", "/generate_stream"),
        ("/gw/generate_stream", "/generate", "/gw/generate"),
        ("/gw/generate", "/v1/models", "/gw/v1/models"),
        ("/api/chat", "/api/tags", "/api/tags"),
        ("/v2/models/m/generate_stream", "/v2/models/m/generate", "/v2/models/m/generate"),
        ("/v2/models/m/infer", "/v2", "/v2"),
    ],
)
def test_whatever_is_asked_goes_beside_the_endpoint(base: str, asked: str, path: str) -> None:
    assert parse_target(f"http://h{base}?k=CANARY").url_of(asked) == f"http://h{path}"


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=ENDPOINTS.keys())
def test_the_whole_path_of_every_endpoint_may_be_the_address(endpoint: Endpoint) -> None:
    for stream in (True, False):
        path = endpoint.at("org/m", stream=stream).path
        assert parse_target(f"http://h:1/gw{path}/").path(path) == f"/gw{path}"
        assert parse_target(f"http://h:1/gw{path}").path("/metrics") == "/gw/metrics"


def test_userinfo_becomes_the_basic_credential_of_rfc_7617() -> None:
    target = parse_target("http://Aladdin:open%20sesame@h/v1")
    assert target.authorization == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert parse_target("http://token@h").authorization == "Basic dG9rZW46"
    assert parse_target("http://h").authorization is None
    assert parse_target("http://@h").authorization is None


def test_the_redacted_address_has_neither_userinfo_nor_query() -> None:
    target = parse_target("https://user:CANARY@h:8443/gw/v1?key=CANARY")
    assert target.redacted == "https://h:8443/gw/v1"
    assert "CANARY" not in repr(target)


@given(
    secret=st.text("abcXYZ019-._~%@:/?#[]", min_size=3, max_size=12).map(lambda text: "CANARY" + text + "CANARY"),
    rest=st.sampled_from(["", "h", "h:99999", "h:x", "[::1", "h /", ":1", "h:0"]),
    scheme=st.sampled_from(["http://", "https://", "ftp://", "//", ""]),
)
def test_neither_refusal_nor_repr_shows_what_stands_before_the_host(secret: str, rest: str, scheme: str) -> None:
    shown = ""
    try:
        shown = repr(parse_target(f"{scheme}user:{secret}@{rest}"))
    except InputError as error:
        shown = str(error)
    assert shown
    assert "CANARY" not in shown


def test_a_zone_is_kept_for_the_connection_and_from_the_server() -> None:
    target = parse_target("http://[fe80::1%25eth0]:81")
    assert (target.host, target.server_name, target.authority) == ("fe80::1%eth0", "fe80::1", "[fe80::1]:81")


def test_a_numeric_host_resolves_to_itself() -> None:
    assert [address.place for address in resolve(Target(scheme="http", host="127.0.0.1", port=81))] == [
        ("127.0.0.1", 81)
    ]


def test_a_name_without_address_is_an_input_error() -> None:
    with pytest.raises(InputError, match="cannot resolve nobody"):
        resolve(parse_target("http://nobody.invalid"))


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/v2/chat", "/v2/chat"),
        ("/v2/chat?x=1", "/v2/chat?x=1"),
        ("other", "/v1/other"),
        ("http://llm.test:8000/new", "/new"),
        ("HTTP://LLM.test:8000", "/"),
        ("//llm.test:8000/new", "/new"),
        ("https://llm.test:8000/new", None),
        ("http://llm.test/new", None),
        ("http://elsewhere.test:8000/new", None),
        ("http://me:x@llm.test:8000/new", None),
        ("http://[broken", None),
        ("http://llm.test:8000/new path", None),
        ("/caf\xe9", None),
    ],
)
def test_a_redirect_is_followed_within_the_target_only(location: str, path: str | None) -> None:
    assert redirected_path(parse_target("http://llm.test:8000"), "/v1/chat", location) == path


def test_a_proxy_is_an_http_address_with_maybe_a_user() -> None:
    proxy = parse_proxy("http://me:x@proxy.test:3128/")
    assert (proxy.host, proxy.port, proxy.authorization) == ("proxy.test", 3128, "Basic bWU6eA==")


@pytest.mark.parametrize("url", ["https://p:s3cret@proxy.test", "http://p:s3cret@proxy.test/path", "socks5://proxy"])
def test_any_other_proxy_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_proxy(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://llm.test", "llm.test:80"),
        ("https://llm.test", "llm.test:443"),
        ("https://[::1]:8443", "[::1]:8443"),
    ],
)
def test_a_tunnel_names_the_port_even_where_it_is_the_schemes_own(url: str, authority: str) -> None:
    assert parse_target(url).authority == authority


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("http://user:p%40ss@host:8000/v1?key=s", "http://host:8000/v1"),
        ("--host=https://token@host/v1", "--host=https://host/v1"),
        ("http://host?api-key=a@b", "http://b"),
        ("--url=http://host#CANARY", "--url=http://host"),
        ("--tags=a@b?", "--tags=a@b?"),
    ],
)
def test_a_command_line_in_a_file_holds_no_secret_of_an_address(argument: str, shown: str) -> None:
    assert shown_argument(argument) == shown
