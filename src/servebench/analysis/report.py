"""Know how a page is one file that asks nobody for anything.

plotly's script comes out of the installed package, into the page or beside it. Scripts run only if their hash stands in
the page's own content security policy, so text from a server cannot become one, and no connection is allowed at all.
"""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from servebench.analysis.compare.result import Comparison
from servebench.analysis.digest import Examined, examine
from servebench.analysis.page import build_page
from servebench.analysis.page.compared import build_comparison, sides
from servebench.analysis.page.model import Page
from servebench.analysis.page.several import Named, build_several, labels
from servebench.analysis.plots import Plot, run_plots
from servebench.analysis.plots.compared import comparison_plots
from servebench.analysis.plots.several import Labelled, several_curves
from servebench.analysis.plots.spread import pooled_distributions
from servebench.shards.manifest import write_atomic

REPORT_NAME = "report.html"


def write_report(folder: Path, examined: Examined | None = None, *, assets: Path | None = None) -> Path:
    """Write `report.html` into a run folder, merged or not, and return its path; `examined`: as it was read already.

    `assets`: folder for plotly's script, which then stands beside the page and not in it. Raises ShardError where the
    folder is no run folder.
    """
    path = folder / REPORT_NAME
    found = examined or examine(folder)
    write_page(path, *report_page(found), assets=assets)
    return path


def report_page(examined: Examined) -> tuple[Page, tuple[Plot, ...]]:
    """Return the page of one run, and its plots."""
    found = examined.digest
    plots = run_plots(examined.run, found.curve, found.objectives, found.server, found.findings.saturation)
    return build_page(found, plots), plots


def several_page(runs: Sequence[tuple[Path, Examined]]) -> tuple[Page, tuple[Plot, ...]]:
    """Return the page of several runs side by side, and its plots."""
    names = labels([examined.digest for _, examined in runs])
    named = [Named(name, folder, examined.digest) for name, (folder, examined) in zip(names, runs, strict=True)]
    plots = (
        *several_curves([Labelled(run.label, run.digest, index, run.label) for index, run in enumerate(named)]),
        *pooled_distributions([(name, examined.run) for name, (_, examined) in zip(names, runs, strict=True)]),
    )
    return build_several(named, plots), plots


def comparison_page(found: Comparison) -> tuple[Page, tuple[Plot, ...]]:
    """Return the page of a comparison, and its plots."""
    plots = (*comparison_plots(found), *several_curves(sides(found)))
    return build_comparison(found, plots), plots


def write_page(path: Path, page: Page, plots: Sequence[Plot], *, assets: Path | None = None) -> None:
    """Write a page as one file, or with plotly's script in the folder `assets`, which is made where it is missing."""
    source = None
    if assets is not None:
        assets.mkdir(parents=True, exist_ok=True)
        script = assets / f"plotly-{get_plotlyjs_version()}.min.js"
        write_atomic(script, get_plotlyjs().encode())
        source = quote(os.path.relpath(script, path.parent))
    write_atomic(path, page_html(page, plots, source).encode())


def page_html(page: Page, plots: Sequence[Plot], plotly_source: str | None = None) -> str:
    """Return the whole page; `plotly_source`: relative address of plotly's script, None = inside."""
    templates = jinja2.Environment(loader=jinja2.PackageLoader("servebench.analysis"), autoescape=True)
    plotly_js, report_js, css = (
        _script(get_plotlyjs()) if plotly_source is None else "",
        _asset(templates, "report.js"),
        _asset(templates, "report.css"),
    )
    return templates.get_template("report.html.j2").render(
        page=page,
        policy=_policy(tuple(filter(None, (plotly_js, report_js))), beside=plotly_source is not None),
        css=Markup(css),  # noqa: S704 - our own file
        plotly_js=Markup(plotly_js),  # noqa: S704 - plotly's own file, checked for an end tag
        plotly_source=plotly_source,
        report_js=Markup(report_js),  # noqa: S704 - our own file
        plot_data=Markup(plot_json(plots)),  # noqa: S704 - plot_json leaves no "<"
    )


def plot_json(plots: Sequence[Plot]) -> str:
    """Return the figures as JSON that may stand in a script element: it holds no `<`, `>` or `&`."""
    content = {plot.name: json.loads(plot.figure.to_json()) | {"group": plot.group} for plot in plots}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _asset(templates: jinja2.Environment, name: str) -> str:
    if templates.loader is None:
        msg = "the environment has no loader"
        raise ValueError(msg)
    return templates.loader.get_source(templates, name)[0]


def _script(source: str) -> str:
    """Return a script's source if it can stand in a script element."""
    if "</script" in source.lower():
        msg = "plotly's script holds an end tag and cannot be put into a page"
        raise ValueError(msg)
    return source


def _policy(scripts: Sequence[str], *, beside: bool) -> str:
    """Return a content security policy that runs exactly these scripts and connects to nobody.

    `beside`: also scripts of the page's own server, or of its own disk.
    """
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) + (" 'self'" if beside else "")
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            "style-src 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
