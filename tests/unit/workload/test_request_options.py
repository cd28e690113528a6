"""What a file may say about headers, retries, redirects and the proxy, and what it may not."""

import pytest

from servebench.core.errors import SpecError
from servebench.workload.document import document_of
from servebench.workload.load import parse_workload
from servebench.workload.model import Abandon, Requests, Retrying, StopRules
from servebench.workload.resolve import dump_yaml

FILE = """\
name: chat
prompts: {{source: {{kind: mt-bench}}}}
load: {{kind: open, phases: [{{name: even, shape: steady, rate_per_s: 2, duration: 30s}}]}}
requests: {requests}
"""


def requests(text: str) -> Requests:
    return parse_workload(FILE.format(requests=text), "chat.yaml").requests


def test_nothing_is_retried_followed_added_or_sent_through_a_proxy_unless_asked() -> None:
    plain = requests("{}")
    assert (plain.retries, plain.redirects, plain.proxy, plain.headers) == (0, False, None, {})


def test_options_of_a_file_are_understood() -> None:
    read = requests(
        '{retries: {max: 3}, redirects: true, proxy: "http://127.0.0.1:3128", headers: {X-Team: "a b", X-Route: blue}}'
    )
    assert (read.retries, read.redirects, read.proxy) == (3, True, "http://127.0.0.1:3128")
    assert read.headers == {"X-Team": "a b", "X-Route": "blue"}


def test_what_was_understood_can_be_written_down_and_read_again() -> None:
    text = '{retries: {max: 3}, redirects: true, proxy: "http://[::1]:3128", headers: {X-Team: x}}'
    workload = parse_workload(FILE.format(requests=text), "chat.yaml")
    written = document_of(workload)["requests"]
    assert {key: written[key] for key in ("retries", "redirects", "proxy", "headers")} == {
        "retries": {"max": 3},
        "redirects": True,
        "proxy": "http://[::1]:3128",
        "headers": {"X-Team": "x"},
    }


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("{headers: {Host: x}}", "requests.headers.Host", "set by servebench"),
        ("{headers: {X-Request-Id: x}}", "requests.headers.X-Request-Id", "set by servebench"),
        ("{headers: {authorization: Bearer x}}", "requests.headers.authorization", "SERVEBENCH_HEADERS"),
        ("{headers: {'a b': x}}", "requests.headers.a b", "no header name"),
        ('{headers: {X-A: "x\\r\\nB: y"}}', "requests.headers.X-A", "line end"),
        ("{headers: {X-A: 5}}", "requests.headers.X-A", ""),
        ("{retries: {max: -1}}", "requests.retries.max", ""),
        ("{retries: {max: 11}}", "requests.retries.max", ""),
        ("{redirects: yes please}", "requests.redirects", ""),
        ('{proxy: "127.0.0.1:3128"}', "requests.proxy", "http://"),
        ('{proxy: "https://127.0.0.1:3128"}', "requests.proxy", "http://"),
        ('{proxy: "http://127.0.0.1"}', "requests.proxy", "port"),
        ('{proxy: "http://127.0.0.1:99999"}', "requests.proxy", "no address"),
    ],
)
def test_an_option_that_cannot_be_kept_is_a_fault_at_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        requests(text)
    (fault,) = caught.value.faults
    assert fault.place == place
    assert words in fault.message


def test_a_password_in_the_proxys_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(SpecError) as caught:
        requests('{proxy: "http://me:hunter2@127.0.0.1:3128"}')
    assert "SERVEBENCH_PROXY" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_retry_policy_and_leaving_users_are_understood_and_written_down_again() -> None:
    text = (
        "{retries: {max: 2, statuses: [429, 503], pause: 200ms, longest_pause: 5s, budget: 10%}, "
        "abandon: {after: 5s, tokens: 50, share: 10%}}"
    )
    workload = parse_workload(FILE.format(requests=text), "chat.yaml")
    assert workload.requests.retrying == Retrying(
        statuses=(429, 503), pause_ns=200_000_000, longest_ns=5_000_000_000, budget=0.1
    )
    assert workload.requests.abandon == Abandon(share=0.1, after_ns=5_000_000_000, token_events=50)
    assert parse_workload(dump_yaml(workload), "again.yaml") == workload
    assert requests("{abandon: {tokens: 50}}").abandon == Abandon(share=1.0, token_events=50)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("{abandon: {share: 10%}}", "requests.abandon", "after or tokens is wanted"),
        ("{abandon: {after: 5s, share: 0%}}", "requests.abandon.share", "must be above 0"),
        ("{abandon: {after: 5}}", "requests.abandon.after", "has no unit"),
        ("{abandon: {tokens: 0}}", "requests.abandon.tokens", "must be >= 1"),
        ("{retries: {max: 1, statuses: [200]}}", "requests.retries.statuses[0]", "must be >= 400"),
        ("{retries: {max: 1, budget: 150%}}", "requests.retries.budget", "is no share"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        requests(text)
    (fault,) = caught.value.faults
    assert (fault.place, words in fault.message) == (place, True)


RULES = FILE.replace("requests: {requests}", "stop: {rules}")


def test_rules_for_ending_early_are_understood_and_written_down_again() -> None:
    text = "{error_rate: 50%, window: 5s, least: 30, errors: 100, objectives: true}"
    workload = parse_workload(RULES.format(rules=text), "chat.yaml")
    assert workload.stop == StopRules(error_rate=0.5, window_ns=5_000_000_000, least=30, errors=100, objectives=True)
    assert parse_workload(dump_yaml(workload), "again.yaml") == workload
    with pytest.raises(SpecError, match="error_rate, errors or objectives is wanted"):
        parse_workload(RULES.format(rules="{window: 5s}"), "chat.yaml")
