"""What --proxy and --header may hold, and where it goes."""

import click
import pytest
from click.testing import CliRunner

from servebench.cli.way_options import Way, way_options
from servebench.core.errors import InputError
from servebench.inquiry.secrets import Secrets
from servebench.workload.resolve import quick_workload


@click.command()
@way_options("Target")
def show(proxy: str | None, header: dict[str, str]) -> None:
    click.echo(f"{proxy} {header}")


def test_headers_may_be_given_several_times_and_the_last_of_a_name_stays() -> None:
    said = CliRunner().invoke(show, ["--header", "X-Team: a:b", "--header", "X-Route:1", "--header", "x-team:c"])
    assert said.output == "None {'X-Route': '1', 'x-team': 'c'}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--header", "canary"], "NAME:VALUE"),
        (["--header", "X-Api-Key: canary"], "SERVEBENCH_HEADERS"),
        (["--header", "X-Team: Bearer canary"], "SERVEBENCH_HEADERS"),
        (["--header", "Host: canary"], "set by servebench"),
        (["--header", "X-A: canary\r\nB: c"], "line end"),
        (["--proxy", "http://me:canary@p:1"], "SERVEBENCH_PROXY"),
        (["--proxy", "socks5://p:1"], "--proxy"),
    ],
)
def test_what_cannot_be_sent_or_may_be_secret_is_refused_unseen(arguments: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        show.main(arguments, standalone_mode=False)
    assert "canary" not in str(caught.value)


def test_options_win_over_environment_and_workload_and_stay_with_the_run() -> None:
    way = Way(headers={"x-team": "option"}, proxy="http://p:1")
    secrets = way.over(Secrets(api_key="k", headers={"X-Team": "env", "api-key": "s"}, proxy="http://q:2"))
    assert (dict(secrets.headers), secrets.proxy) == ({"api-key": "s", "x-team": "option"}, "http://p:1")
    workload = quick_workload(
        rate_per_s=1.0, duration_ns=10**9, concurrency=None, requests=None, input_tokens=None, output_tokens=None
    )
    kept = way.into(workload).requests
    assert (kept.headers, kept.proxy) == ({"x-team": "option"}, "http://p:1")
    assert Way().into(workload) == workload
