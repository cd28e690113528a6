"""Know how the report is one file that asks nobody for anything.

plotly's script comes out of the installed package. Scripts run only if their hash stands in the page's own content
security policy, so text from a server cannot become one, and no connection is allowed at all.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from servebench.analysis.digest import Examined, examine
from servebench.analysis.page import build_page
from servebench.analysis.plots import Plot, run_plots
from servebench.shards.manifest import write_atomic

REPORT_NAME = "report.html"


def write_report(folder: Path, examined: Examined | None = None) -> Path:
    """Write `report.html` into a run folder, merged or not, and return its path; `examined`: as it was read already.

    Raises ShardError where the folder is no run folder.
    """
    path = folder / REPORT_NAME
    write_atomic(path, report_html(examined or examine(folder)).encode())
    return path


def report_html(examined: Examined) -> str:
    """Return the whole page."""
    found = examined.digest
    plots = run_plots(examined.run, found.curve, found.objectives, found.server, found.findings.saturation)
    templates = jinja2.Environment(loader=jinja2.PackageLoader("servebench.analysis"), autoescape=True)
    plotly_js, report_js, css = (
        _script(get_plotlyjs()),
        _asset(templates, "report.js"),
        _asset(templates, "report.css"),
    )
    return templates.get_template("report.html.j2").render(
        page=build_page(found, plots),
        policy=_policy((plotly_js, report_js)),
        css=Markup(css),  # noqa: S704 - our own file
        plotly_js=Markup(plotly_js),  # noqa: S704 - plotly's own file, checked for an end tag
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


def _policy(scripts: Sequence[str]) -> str:
    """Return a content security policy that runs exactly these scripts and connects to nobody."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
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
