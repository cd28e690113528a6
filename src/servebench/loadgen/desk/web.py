"""Know what servebench adds to Locust's web page: the LLM tab, checked forms, a page of runs and their files.

Locust's page is a built bundle, so everything comes beside it: a script behind the page, routes under /servebench.
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from flask import Blueprint, Response, abort, jsonify, render_template_string, request, send_file, send_from_directory

from servebench.loadgen.desk.choices import choice_fault
from servebench.loadgen.desk.live_board import LiveBoard
from servebench.loadgen.desk.web_form import form_fault, unreachable
from servebench.loadgen.desk.web_runs import file_of, list_runs

STATIC = Path(__file__).parent / "static"
PREFIX = "/servebench"
TAB = "llm"
MAX_MARKER = 200
_GOING = frozenset({"spawning", "running"})


class WebDesk:
    """The additions to one web page. `mark(text)` writes an event into the run that goes on; False when none does."""

    def __init__(self, environment: Any, board: LiveBoard, out: Path, mark: Callable[[str], bool]) -> None:  # noqa: ANN401 - Locust is untyped
        self._environment, self._board, self._out, self._mark = environment, board, out, mark

    def install(self) -> None:
        """Add tab, script, checks and routes; once, before the page is opened."""
        ui = self._environment.web_ui
        base = (getattr(self._environment.parsed_options, "web_base_path", None) or "").rstrip("/")
        ui.template_args["extended_tabs"] = [{"title": "LLM", "key": TAB}]
        ui.template_args["extended_tables"] = [{"key": TAB, "structure": [{"key": "name", "title": "Metric"}]}]
        ui.template_args["extended_csv_files"] = [{"href": f".{PREFIX}/runs", "title": "Runs of servebench"}]
        ui.app.before_request(self._check_form)
        ui.app.after_request(self._add_script)
        ui.app.register_blueprint(self._pages(ui.auth_required_if_enabled), url_prefix=f"{base}{PREFIX}")

    def _pages(self, guarded: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Blueprint:
        pages = Blueprint("servebench", __name__)
        pages.add_url_rule("/llm_tab.<kind>", "static", guarded(self._static))
        pages.add_url_rule("/live", "live", guarded(self._live))
        pages.add_url_rule("/marker", "marker", guarded(self._marker), methods=["POST"])
        pages.add_url_rule("/runs", "runs", guarded(self._runs))
        pages.add_url_rule("/runs/<run_id>/<name>", "file", guarded(self._file))
        return pages

    def _check_form(self) -> Response | None:
        """Refuse a form that cannot work before Locust takes any of it."""
        if request.endpoint != "locust.swarm":
            return None
        going = self._environment.runner.state in _GOING
        fault = form_fault(
            {name: str(value) for name, value in request.form.items()},
            running_host=self._environment.host if going else None,
            reach=unreachable,
        ) or choice_fault(request.form)
        return None if fault is None else jsonify({"success": False, "message": fault, "host": self._environment.host})

    def _add_script(self, response: Response) -> Response:
        if request.endpoint == "locust.index" and response.mimetype == "text/html":
            rate = float(getattr(self._environment.parsed_options, "rate_per_user", 1.0))
            added = (
                f'<link rel="stylesheet" href=".{PREFIX}/llm_tab.css">'
                f'<script src=".{PREFIX}/llm_tab.js" data-rate-per-user="{rate:g}"></script></body>'
            )
            response.set_data(response.get_data(as_text=True).replace("</body>", added, 1))
        return response

    def _static(self, kind: str) -> Response:
        if kind not in {"js", "css"}:
            abort(404)
        return send_from_directory(STATIC, f"llm_tab.{kind}", max_age=0)

    def _live(self) -> Response:
        since = request.args.get("since", default=0, type=int)
        answer = self._board.answer(since)
        run_id = answer["run"].get("run_id")
        answer["report"] = isinstance(run_id, str) and file_of(self._out, run_id, "report.html") is not None
        answer["rate_per_user"] = float(getattr(self._environment.parsed_options, "rate_per_user", 1.0))
        answer["command"] = shlex.join(["servebench", "table", str(self._out / run_id)]) if run_id else None
        answer["by_hand"] = answer["run"].get("duration_s") is None
        return Response(msgspec.json.encode(answer), mimetype="application/json")  # once a second: small and quick

    def _marker(self) -> Response | tuple[Response, int]:
        text = " ".join(request.get_data(as_text=True).split())[:MAX_MARKER]
        if not text:
            return jsonify({"success": False, "message": "a marker needs a word"}), 400
        done = self._mark(text)
        return jsonify({"success": done, "message": "" if done else "no run is going on"})

    def _runs(self) -> str:
        template = (STATIC / "runs.html").read_text(encoding="utf-8")
        return render_template_string(template, runs=list_runs(self._out), out=str(self._out))

    def _file(self, run_id: str, name: str) -> Response:
        path = file_of(self._out, run_id, name)
        if path is None:
            abort(404)
        return send_file(path, max_age=0)
