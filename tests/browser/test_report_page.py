"""The report in a real browser, opened from file://, at desk and phone width, light and dark."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders import S, busy_run
from tests.engine_builders import ADDRESS, counters, write_events, write_pages

from servebench.analysis.digest import examine
from servebench.analysis.report import several_page, write_page, write_report

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NASTY = "</td><script>alert('m')</script><img src=x onerror=alert(1)>"

CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (node) => {
    for (; node; node = node.parentElement) {
      const found = parse(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const low = [];
  const look = (node, colour) => {
    const [a, b] = [light(parse(colour)), light(back(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([node.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
  };
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!text || ["SCRIPT", "STYLE"].includes(node.tagName)) continue;
    look(node, node instanceof SVGElement ? getComputedStyle(node).fill : getComputedStyle(node).color);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = busy_run(tmp_path_factory.mktemp("report") / "run", model=NASTY)
    seconds = range(0, 200, 2)
    for number, source in enumerate((ADDRESS, NASTY)):
        pages = []
        for t in seconds:
            gauges = {"running": t % 7, "waiting": t % 3, "kv_usage": (t % 10) / 10, "output_tokens": 90.0 * t}
            hits = {"prefix_hits": 3.0 * t, "prefix_queries": 10.0 * t, "prompt_tokens": 300.0 * t}
            pages.append((t * S, counters(3 * t, ttft=0.09, queue=0.01, e2e=0.4) | gauges | hits))
        write_pages(folder, pages, source=source, number=number)
    hardware = [(t * S, {"gpu_busy": 0.5, "gpu_power": 300.0 + t}) for t in seconds]
    write_pages(folder, hardware, kind="hardware", dialect="dcgm", source="http://127.0.0.1:9400/metrics")
    write_events(folder, {"kind": "engine", "data": {"source": "http://127.0.0.1:1/metrics", "why": NASTY}})
    return write_report(folder)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_draws_alone_and_fits_the_screen(browser: Any, report: Path, width: int, scheme: str) -> None:  # noqa: ANN401 - playwright is untyped here
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-drawn=yes]")
    plots = page.locator("[data-plot]").count()
    assert plots >= 8
    assert page.locator("[data-plot] svg.main-svg").count() >= plots
    told = page.locator("[data-plot]").evaluate_all("found => found.map((one) => one.dataset.plot)")
    assert {"where-time-goes", "server-requests", "server-ttft", "server-shares", "hardware", "power"} <= set(told)
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CONTRAST) == []
    assert page.locator("body").inner_text().count(NASTY) >= 1
    assert page.locator("main img").count() == 0
    page.close()


def test_a_distribution_can_be_switched_to_a_log_axis(browser: Any, report: Path) -> None:  # noqa: ANN401 - playwright is untyped here
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-drawn=yes]")
    button = page.locator("[data-log=ecdf-ttft]")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    page.wait_for_function("document.querySelector('[data-plot=ecdf-ttft]').layout.xaxis.type === 'log'")
    page.close()


def test_a_plot_can_be_saved_as_image_and_as_numbers(browser: Any, report: Path, tmp_path: Path) -> None:  # noqa: ANN401
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark", accept_downloads=True)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-drawn=yes]")
    starts = {"png": b"\x89PNG", "svg": b"<svg", "csv": b"series,offered /s"}
    for form, start in starts.items():
        with page.expect_download() as caught:
            page.locator(f"[data-save=throughput][data-form={form}]").click()
        path = tmp_path / caught.value.suggested_filename
        caught.value.save_as(path)
        assert path.name == f"throughput.{form}"
        assert path.read_bytes().startswith(start)
    assert "\r\nramp," in (tmp_path / "throughput.csv").read_bytes().decode()
    assert said == []
    page.close()


def test_on_paper_a_dark_report_is_black_on_white_and_as_wide_as_the_paper(browser: Any, report: Path) -> None:  # noqa: ANN401
    page = browser.new_page(viewport={"width": 794, "height": 1123}, color_scheme="dark")
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-drawn=yes]")
    page.emulate_media(media="print")
    page.wait_for_function("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'")
    page.wait_for_function(f"({CONTRAST})().length === 0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    assert page.pdf().startswith(b"%PDF")
    page.close()


def test_runs_side_by_side_open_from_disk_with_the_script_beside(browser: Any, tmp_path: Path) -> None:  # noqa: ANN401
    runs = [busy_run(tmp_path / name, model=NASTY, seed=seed) for seed, name in enumerate(("one run", "two"))]
    path = tmp_path / "runs.html"
    write_page(path, *several_page([(run, examine(run)) for run in runs]), assets=tmp_path / "my assets")
    page = browser.new_page(viewport={"width": 390, "height": 900}, color_scheme="dark")
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn=yes]")
    assert page.locator("[data-plot] svg.main-svg").count() >= 9
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(CONTRAST) == []
    assert said == []
    page.close()
