"""The web page as an operator uses it: start, watch, change the rate, stop, open the report; in headless Chromium."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import free_port
from tests.servers.simulator import sim_starter

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ROOT = Path(__file__).parents[2]
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BASE = "/load"
WORKLOAD = """
name: desk
seed: 7
target: {endpoint: openai-chat}
prompts:
  sources: [{kind: mt-bench}]
  output_tokens: {from: fixed, tokens: 20}
load:
  kind: open
  phases:
    - {name: calm, shape: steady, rate_per_s: 4, duration: 13s}
    - {name: brisk, shape: steady, rate_per_s: 8, duration: 13s}
objectives: {ttft: {p95: 10s}, tpot: {p95: 1ms}}
"""
LOGIN = "eve:pw-canary-17"
SLOW_MS = 40_000
"""A busy machine may need long; the waits end as soon as what they wait for is there."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[str]:
    """Give the address of a page on a simulated engine, under a base path."""
    yield from served(tmp_path)


@pytest.fixture
def locked_desk(tmp_path: Path) -> Iterator[str]:
    """Give the address of the same page, which asks who comes."""
    yield from served(tmp_path, "--web-login", SERVEBENCH_WEB_LOGIN=LOGIN)


def served(tmp_path: Path, *options: str, **environ: str) -> Iterator[str]:
    (tmp_path / "desk.yaml").write_text(WORKLOAD, encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SERVEBENCH_", "LOCUST_"))}
    with sim_starter(tmp_path) as start_sim:
        sim, port = start_sim(preset="demo"), free_port()
        command = [
            *(sys.executable, "-m", "servebench.cli", "ui", "desk.yaml", "--url", f"http://127.0.0.1:{sim.port}"),
            *("--workers", "1", "--web-port", str(port), "--web-base-path", BASE, "--drain", "2s"),
            *("--out", str(tmp_path / "runs"), *options),
        ]
        with (tmp_path / "ui.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=tmp_path, env={**kept, "PYTHONPATH": str(ROOT / "src"), **environ}, stdout=log, stderr=log
            )
        try:
            yield f"http://127.0.0.1:{port}{BASE}"
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield chromium
        chromium.close()


def opened(browser: Any, address: str) -> tuple[Any, list[str]]:  # noqa: ANN401 - playwright has no types
    """Open the page once it is served; give it with what the console complains of."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []

    def heard(message: Any) -> None:  # noqa: ANN401 - playwright has no types
        if message.type == "error":
            complaints.append(f"{message.text} {message.location}")

    page.on("console", heard)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.heard_dialog = lambda dialog: complaints.append(dialog.message)
    page.on("dialog", page.heard_dialog)
    for _ in range(150):
        try:
            page.goto(f"{address}/")
        except sync_api.Error:
            page.wait_for_timeout(200)
        else:
            break
    complaints.clear()
    page.wait_for_selector("input[name=userCount]", timeout=SLOW_MS)
    page.wait_for_function("document.body.innerText.match(/Workers\\s+1/)", timeout=SLOW_MS)
    return page, complaints


def await_running(page: Any, address: str) -> None:  # noqa: ANN401 - playwright has no types
    """Wait until a start by request has begun: a page opened before it shows the Start form and stays with it."""
    for _ in range(SLOW_MS // 200):
        if page.request.get(f"{address}/stats/requests").json()["state"] in {"spawning", "running"}:
            return
        page.wait_for_timeout(200)


def submit(page: Any, **fields: str) -> None:  # noqa: ANN401 - playwright has no types
    for name, value in fields.items():
        page.fill(f"input[name={name}]", value)
    page.click("button[type=submit]")


def shot(page: Any, name: str) -> None:  # noqa: ANN401 - playwright has no types
    """Keep a picture for whoever wants to look; nowhere unless asked for."""
    folder = os.environ.get("SERVEBENCH_SHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def choices_of_the_form(page: Any) -> None:  # noqa: ANN401 - playwright has no types
    page.click("text=Custom parameters")
    page.wait_for_selector("label:has-text('Workload')", timeout=SLOW_MS)
    page.wait_for_selector("label:has-text('Endpoint')", timeout=SLOW_MS)
    shot(page, "start")
    page.click("text=Custom parameters")


def refused_forms(page: Any) -> None:  # noqa: ANN401 - playwright has no types
    submit(page, userCount="0", spawnRate="10")
    page.wait_for_selector("text=Offered rate: 0 must be above 0", timeout=SLOW_MS)
    submit(page, userCount="4", host="htp:/x")
    page.wait_for_selector("text=Please use a valid url format", timeout=SLOW_MS)
    closed = f"http://127.0.0.1:{free_port()}"
    submit(page, host=closed)
    page.wait_for_selector(f"text=Host: nothing listens at {closed}", timeout=SLOW_MS)
    submit(page, host="http://eve:pw-canary-9@127.0.0.1:1")
    page.wait_for_selector("text=Host: no user, password or query here", timeout=SLOW_MS)


CONTRAST = """
() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = (top, below) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a));
  };
  const light = (rgb) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => {
    const c = rgb[i] / 255;
    return sum + share * (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  }, 0);
  const chain = (node) => { const all = []; for (let e = node; e; e = e.parentElement) all.unshift(e); return all; };
  const found = [];
  for (const node of document.querySelectorAll("#sb-llm *, #sb-over-note")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || node.tagName === "OPTION" || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    let back = [255, 255, 255], seen = 1;
    for (const e of chain(node)) {
      back = over(parse(getComputedStyle(e).backgroundColor), back);
      seen *= Number(getComputedStyle(e).opacity);
    }
    const ink = over([...parse(node instanceof SVGElement ? style.fill : style.color).slice(0, 3), seen], back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), node.tagName, node.textContent.slice(0, 40)]);
  }
  return found;
}
"""
"""Contrast of every text of the tab with what lies behind it, by the formula of WCAG 2."""


def assert_legible(page: Any) -> None:  # noqa: ANN401 - playwright has no types
    found = page.evaluate(CONTRAST)
    assert len(found) > 100
    assert [one for one in found if one[0] < 4.5] == []


def paused_for_a_moment(page: Any) -> None:  # noqa: ANN401 - playwright has no types
    page.click("#sb-llm button:has-text('Pause')")
    page.wait_for_selector("#sb-llm.ended b:has-text('PAUSED at')", timeout=SLOW_MS)
    page.click("#sb-llm button:has-text('Go on')")
    page.wait_for_selector("#sb-llm:not(.ended) b:has-text('RUNNING')", timeout=SLOW_MS)


def on_a_phone_in_the_dark(page: Any) -> None:  # noqa: ANN401 - playwright has no types
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    page.wait_for_function("document.querySelector('#sb-llm.dark .facts')?.innerText.includes('sent')", timeout=SLOW_MS)
    page.wait_for_function("document.querySelectorAll('#sb-llm svg path').length > 5", timeout=SLOW_MS)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert_legible(page)
    shot(page, "phone-dark")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_function("document.querySelector('#sb-llm figure')?.clientWidth > 500", timeout=SLOW_MS)
    shot(page, "dark")


def test_an_operator_starts_watches_changes_the_rate_stops_and_opens_the_report(desk: str, browser: Any) -> None:  # noqa: ANN401
    page, complaints = opened(browser, desk)
    labels = page.inner_text("form")
    assert "Offered rate, req/s" in labels
    assert "Number of users" not in labels
    choices_of_the_form(page)
    refused_forms(page)
    page.reload()
    page.wait_for_selector("input[name=userCount]", timeout=SLOW_MS)
    submit(page, userCount="4", spawnRate="4")
    page.wait_for_selector("text=LLM", timeout=SLOW_MS)
    page.click("text=LLM")
    page.wait_for_function(
        "document.querySelector('#sb-llm .bar b')?.textContent.startsWith('RUNNING')", timeout=SLOW_MS
    )
    page.wait_for_function(
        "/TTFT p95 [0-9]/.test(document.querySelector('#sb-llm .facts')?.innerText)", timeout=SLOW_MS
    )
    page.wait_for_function("/running [0-9]/.test(document.querySelector('#sb-llm .facts')?.innerText)", timeout=SLOW_MS)
    assert page.locator("#sb-llm figure").count() == 11
    assert "no data yet" not in page.inner_text("#sb-llm figure:nth-of-type(2)")
    assert page.locator("#sb-llm figure:nth-of-type(2) path").count() >= 3

    page.fill("#sb-llm input[aria-label^='Offered rate']", "12")
    page.wait_for_selector("text=4 → 12 req/s over 1 s", timeout=SLOW_MS)
    page.keyboard.press("Tab")  # to the seconds, then to the button: everything can be had from the keyboard
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sb-llm li:has-text('edit: offered rate 12/s')", timeout=SLOW_MS)
    page.fill("#sb-llm input[aria-label='Text of a marker']", "<b>cache</b> emptied")
    page.click("#sb-llm button:has-text('Mark')")
    page.wait_for_selector("#sb-llm li:has-text('marker: <b>cache</b> emptied')", timeout=SLOW_MS)
    assert_legible(page)
    shot(page, "light")
    paused_for_a_moment(page)
    on_a_phone_in_the_dark(page)
    page.click("button:has-text('Stop')")
    page.wait_for_function(
        "document.querySelector('#sb-llm.ended .bar b')?.textContent.startsWith('ENDED')", timeout=SLOW_MS
    )
    page.wait_for_selector("#sb-llm a:has-text('Report of this run')", timeout=2 * SLOW_MS)
    page.wait_for_selector("header #sb-over-note:has-text('ended')", timeout=SLOW_MS)
    assert page.evaluate("document.body.classList.contains('sb-over')"), "Locust's last rate no longer looks current"
    assert_legible(page)
    *words, folder = shlex.split(page.inner_text("#sb-llm code"))
    assert words == ["servebench", "table"]
    assert (Path(folder) / "run.json").is_file(), "what is to be pasted names the folder"
    shot(page, "ended")
    page.click("#sb-llm a:has-text('Report of this run')")
    page.wait_for_selector("h1:has-text('desk')", timeout=SLOW_MS)
    assert "servebench" in page.title()

    page.goto(f"{desk}/servebench/runs")
    page.wait_for_selector("li", timeout=SLOW_MS)
    assert "desk" in page.inner_text("li")
    assert page.locator("li a:has-text('report.html')").count() == 1
    shot(page, "runs")
    assert complaints == []


def test_the_page_and_its_polls_are_small_and_no_other_file_can_be_had(desk: str, browser: Any) -> None:  # noqa: ANN401
    page, _ = opened(browser, desk)
    submit(page, userCount="4", spawnRate="4")
    page.wait_for_selector("text=LLM", timeout=SLOW_MS)
    own = ("/", "/servebench/llm_tab.js", "/servebench/llm_tab.css")
    sizes = {path: len(urllib.request.urlopen(f"{desk}{path}").read()) for path in own}
    assert 0 < sum(sizes.values()) < 1_000_000
    with urllib.request.urlopen(f"{desk}/servebench/live?since=0") as answer:
        assert 0 < len(answer.read()) < 50_000
    for path in (
        "runs/x/run.json",
        "runs/20260101T000000Z-x-0000/secret.txt",
        "runs/..%2F..%2Fetc/passwd",
        "llm_tab.py",
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{desk}/servebench/{path}")
        assert refused.value.code == 404
        refused.value.close()


def test_a_shipped_workload_is_chosen_and_drives_itself(desk: str, browser: Any) -> None:  # noqa: ANN401
    page, complaints = opened(browser, desk)
    form = {"user_count": "1", "spawn_rate": "1", "workload": "demo", "drive": "as planned"}
    refused = page.request.post(f"{desk}/swarm", form=form | {"workload": "none of ours"}).json()
    assert not refused["success"]
    assert 'workload "none of ours" is none of' in refused["message"]
    assert page.request.post(f"{desk}/swarm", form=form).json()["success"]
    await_running(page, desk)
    page.goto(f"{desk}/?tab=llm")
    page.wait_for_function("document.querySelector('#sb-llm .bar')?.innerText.includes('replay')", timeout=SLOW_MS)
    assert page.is_disabled("#sb-llm button:has-text('Apply')"), "the plan sets the rate"
    page.click("button:has-text('Stop')")
    page.wait_for_selector("#sb-llm a:has-text('run.json')", timeout=SLOW_MS)
    run_json = page.get_attribute("#sb-llm a:has-text('run.json')", "href")
    manifest = page.request.get(run_json).json()
    assert (manifest["name"], manifest["engine"]) == ("demo", "plan")
    assert complaints == []


def test_phases_have_their_dots_rows_and_limits_and_reset_asks_first(desk: str, browser: Any) -> None:  # noqa: ANN401
    page, complaints = opened(browser, desk)
    assert page.request.post(
        f"{desk}/swarm", form={"user_count": "1", "spawn_rate": "1", "drive": "as planned"}
    ).json()["success"]
    await_running(page, desk)
    page.goto(f"{desk}/?tab=llm")
    page.wait_for_function("document.querySelectorAll('#sb-llm .legend path.dot').length === 2", timeout=2 * SLOW_MS)
    dots = page.locator("#sb-llm figure:has-text('against load')")
    page.wait_for_function("document.querySelectorAll('#sb-llm tbody tr:has(td)').length >= 6", timeout=SLOW_MS)
    assert dots.locator(".legend span span").all_inner_texts() == ["calm", "brisk"]
    assert len({mark.get_attribute("d") for mark in dots.locator(".legend path").all()}) == 2, "a shape for each phase"
    facts = page.inner_text("#sb-llm .facts")
    assert "✓ met < 10000" in facts.replace(",", "")
    assert "✗ missed < 1" in facts
    assert page.locator("#sb-llm figure:has-text('Chunk gap') line.limit").count() == 1
    dots.locator("summary").click()
    page.wait_for_function("document.querySelectorAll('#sb-llm details[open] tbody tr').length >= 2", timeout=SLOW_MS)
    assert dots.locator("thead th").all_inner_texts() == ["phase", "sent req/s", "n", "p50 ms", "p95 ms"]

    asked: list[str] = []
    page.remove_listener("dialog", page.heard_dialog)

    def refuse(dialog: Any) -> None:  # noqa: ANN401 - playwright has no types
        asked.append(dialog.message)
        dialog.dismiss()

    page.once("dialog", refuse)
    before = page.request.get(f"{desk}/stats/requests").json()["stats"][-1]["num_requests"]
    page.click("button:has-text('Reset')")
    page.wait_for_timeout(500)
    assert len(asked) == 1
    assert asked[0].startswith("Reset Locust's statistics?")
    assert page.request.get(f"{desk}/stats/requests").json()["stats"][-1]["num_requests"] >= before > 0
    assert complaints == []


def test_a_page_with_a_login_shows_nothing_before_it(locked_desk: str, browser: Any) -> None:  # noqa: ANN401
    page = browser.new_page()
    for _ in range(150):
        try:
            page.goto(f"{locked_desk}/")
        except sync_api.Error:
            page.wait_for_timeout(200)
        else:
            break
    page.wait_for_selector("input[name=password]", timeout=SLOW_MS)
    for path in ("servebench/live", "servebench/runs", "servebench/llm_tab.js", "stats/requests"):
        assert page.request.get(f"{locked_desk}/{path}", max_redirects=0).status in {302, 401}
    name, _, password = LOGIN.partition(":")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", "wrong")
    page.click("button[type=submit]")
    page.wait_for_selector("text=Wrong name or password.", timeout=SLOW_MS)
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    page.click("button[type=submit]")
    page.wait_for_selector("input[name=userCount]", timeout=SLOW_MS)
    assert page.request.get(f"{locked_desk}/servebench/live").json()["run"] == {"state": "ready"}
