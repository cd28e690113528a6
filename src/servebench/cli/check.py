"""Know the command `check`: what a service is and does, told before any load, by at most five small requests."""

import http
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import click

from servebench.cli.base import command, option, show
from servebench.cli.findings import Facts, Finding, Metrics, findings, plain, summary, table, target_block
from servebench.cli.finish import next_command
from servebench.cli.probe import Prober
from servebench.cli.recognise import (
    NATIVE_ENDPOINT,
    by_answer,
    gateway,
    kserve_server,
    listed_models,
    ollama_models,
    server_name,
    text_input,
)
from servebench.cli.way_options import Way, way_options
from servebench.core.outcomes import ExitCode
from servebench.core.target import Target, parse_target
from servebench.inquiry.call import Page
from servebench.inquiry.models import MODELS, Question, judge
from servebench.inquiry.secrets import Secrets, read_secrets
from servebench.telemetry.exposition import read_page
from servebench.telemetry.reading import canonical, missing_text
from servebench.wire.endpoint import Endpoint
from servebench.wire.endpoints import ENDPOINTS


@command(
    "check",
    "Say what a service can do, before any load.",
    examples=("check http://127.0.0.1:8000", "check http://127.0.0.1:8000 --model llama-3.1-8b --json"),
)
@click.argument("url")
@option("--model", help="Model to ask for; default: the first one served.")
@option(
    "--endpoint",
    type=click.Choice(sorted(ENDPOINTS)),
    metavar="NAME",
    help="How to ask: openai-chat, tgi-generate, …; default: what the service is found to be.",
)
@way_options("General")
@option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(
    *, url: str, model: str | None, endpoint: str | None, proxy: str | None, header: dict[str, str], as_json: bool
) -> int:
    """Ask a service at most five small requests and say what a run would meet.

    Reachable, models, streams, tokens per chunk, cached tokens, usage, keep-alive, metrics, clock; then the target line
    for a workload file. The key comes from SERVEBENCH_API_KEY or SERVEBENCH_API_KEY_FILE. Exit code 2 when something
    failed that a run needs.
    """
    secrets = Way(headers=header, proxy=proxy).over(read_secrets(os.environ))
    facts = gather(parse_target(url, "URL"), secrets, model=model, endpoint=endpoint)
    lines = findings(facts)
    failed = any(line.state == "failed" for line in lines)
    if as_json:
        click.echo(_as_json(facts, lines))
        return ExitCode.BAD_INPUT if failed else ExitCode.OK
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    show("\n".join(table(lines, unicode=encoding.startswith("utf"))))
    if failed:
        show(summary(lines))
        return ExitCode.BAD_INPUT
    block = target_block(facts).replace("\n", "\n  ")
    show(f"{summary(lines)} For the workload:\n  {block}")
    named = ("--model", facts.model) if facts.model is not None else ()
    shown = parse_target(url).redacted
    if facts.endpoint == "openai-chat":
        show(f"Next: {next_command('run', '--url', shown, *named, '--rate', '2', '--duration', '30s')}")
    return ExitCode.OK


def gather(target: Target, secrets: Secrets, *, model: str | None, endpoint: str | None) -> Facts:
    """Return what the service shows of itself.

    Raises InputError when it cannot be reached or wants a key.
    """
    prober = Prober(target=target, endpoint=ENDPOINTS[endpoint or "openai-chat"], secrets=secrets)
    try:
        return _gather(prober, model=model, endpoint=endpoint)
    finally:
        prober.caller.close()


def _gather(prober: Prober, *, model: str | None, endpoint: str | None) -> Facts:
    listed = prober.first(MODELS)
    models, owners = listed_models(listed.json()) if listed.status == http.HTTPStatus.OK else ((), ())
    wanted = model or (models[0].name if models else None)
    judge(Question(approach=prober.way(prober.endpoint), model=wanted), listed)
    metrics = metrics_of(prober.get("/metrics"), prober.target)
    server = server_name(headers=listed.headers, owners=owners, dialect=metrics.dialect if metrics else None)
    name = "openai-chat" if models else NATIVE_ENDPOINT.get(server or "", "openai-chat")
    if not models and server is None:
        said, name = kserve_server(_page(prober, "/v2"))
        server = None if said is None else plain(said)
    if not models and server is None:
        models = ollama_models(_page(prober, "/api/tags"))
        server, name = ("Ollama", "ollama-chat") if models else (None, "openai-chat")
        wanted = model or (models[0].name if models else None)
    asked = ENDPOINTS[endpoint or name]
    named = _text_input(prober, asked, wanted)
    params = {} if named is None else {"input_name": named}
    streamed = prober.stream(asked.at(wanted, stream=asked.streams), wanted, params)
    return Facts(
        place=prober.target.authority,
        http_version=prober.http_version,
        connect_ms=prober.caller.connect_ms,
        server=gateway(streamed.header_names) or server or by_answer(wanted, streamed.answer.model),
        models=models,
        model=wanted,
        endpoint=asked.name,
        answer=streamed.answer,
        reused=prober.still_open(MODELS) if streamed.kept_alive else False,
        metrics=metrics,
        clock_offset_s=listed.clock_offset_s,
        text_input=named,
    )


def metrics_of(page: Page | None, target: Target) -> Metrics | None:
    """Return what a metric page holds; None when it is none."""
    if page is None or page.status != http.HTTPStatus.OK:
        return None
    read = read_page(page.body.decode("utf-8", "replace"))
    if not read.samples:
        return None
    reading = canonical(read)
    return Metrics(
        place=f"{target.authority}/metrics",
        dialect=reading.dialect,
        numbers=len(read.samples),
        missing=missing_text(reading.missing, read),
    )


def _text_input(prober: Prober, endpoint: Endpoint, model: str | None) -> str | None:
    """Return the input that the model declares for text, where its dialect lets it and it is not the usual one."""
    if endpoint.text_input is None or model is None:
        return None
    return text_input(_page(prober, f"/v2/models/{quote(model, safe='')}"), endpoint.text_input)


def _page(prober: Prober, path: str) -> Any:  # noqa: ANN401 - whatever a server sends
    """Return the JSON at a path, None where there is none."""
    page = prober.get(path)
    return page.json() if page is not None and page.status == http.HTTPStatus.OK else None


def _as_json(facts: Facts, lines: Sequence[Finding]) -> str:
    target = {"endpoint": facts.endpoint, "model": facts.model}
    params = {} if facts.text_input is None else {"input_name": facts.text_input}
    whole = {"server": facts.server, "target": target, "params": params, "findings": [asdict(line) for line in lines]}
    return json.dumps(whole, ensure_ascii=False, indent=2)
