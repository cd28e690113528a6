"""Know the form of `summary.json` as a JSON Schema, for programs that read it. Every number may be null: undefined."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from servebench.analysis.counts import Counts
from servebench.analysis.objectives import State
from servebench.analysis.steps import PREFIX
from servebench.analysis.table_rows import STATISTICS
from servebench.core.outcomes import Outcome, Status, TokenSource
from servebench.metrics import METRICS
from servebench.metrics.metric import Metric

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Node = dict[str, Any]

_COUNT: Node = {"type": "integer", "minimum": 0}
_NUMBER: Node = {"type": ["number", "null"]}
_TEXT: Node = {"type": "string"}
_STEP: Node = {"type": "string", "pattern": f"^{PREFIX}", "description": "own time of a step of the answers, ms"}
_MEASURED = {
    "left_out_warmup": "rows of phases that are not measured",
    "left_out_spoiled": "rows sent in a second which the client spoiled; not in any latency",
    "sent_outside_window": "rows sent outside the window of the phase they were planned for",
}
_RENAMED = {"rows": "requests", "warmup": "left_out_warmup", "spoiled": "left_out_spoiled"}
_FINDINGS = ("settling", "arrivals", "saturation", "recovery", "drift", "stalls", "memory")


def summary_json_schema() -> Node:
    """Return the JSON Schema (draft 2020-12)."""
    return {
        "$schema": DIALECT,
        "title": "servebench summary.json",
        "description": "What a merge says of one run. null = undefined, never 0 or -1.",
        **_record(_properties()),
        "additionalProperties": False,
    }


def _properties() -> Node:
    return {
        "run_id": _TEXT,
        "name": _TEXT,
        "model": _or_null(_TEXT),
        "verdict": _verdict(),
        "planned": _or_null(_COUNT),
        "planned_total": _or_null(_COUNT),
        "rows": _or_null(_COUNT),
        "lost": _COUNT,
        "measured": _measured(),
        "client": _record({"clean_s": _NUMBER, "seconds": _NUMBER}),
        "token_source": {"enum": [*(source.value for source in TokenSource), None]},
        "token_counts": {"type": "object"},
        "objectives": _list(_objective()),
        "outcomes": _list(_outcome()),
        "phases": _list({"type": "object", "required": ["phase", "start_s", "end_s", "planned", "ok"]}),
        "percentiles": _list(_percentiles()),
        "curve": _list({"type": "object", "required": ["phase", "step", "offered_per_s", "achieved_per_s"]}),
        "acceptance": {"type": "object"},
        "leaving": {"type": "object"},
        "cache": _or_null({"type": "object"}),
        "lengths": _or_null({"type": "object"}),
        "findings": _record({name: _list({"type": "object"}) for name in _FINDINGS}),
        "time_split": _list({"type": "object"}),
        "standouts": _list(_TEXT),
    }


def _record(properties: Mapping[str, Node]) -> Node:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _list(items: Node) -> Node:
    return {"type": "array", "items": items}


def _or_null(node: Node) -> Node:
    return {**node, "type": [node["type"], "null"]}


def _words(words: Sequence[str]) -> Node:
    return {"type": "string", "enum": list(words)}


def _verdict() -> Node:
    return _record(
        {
            "valid": {"type": "boolean", "description": "false: the numbers must not be used"},
            "status": _words([status.value for status in Status]),
            "objectives": _words(("met", "missed", "undecided", "none")),
            "reasons": _list(_TEXT),
        }
    )


def _measured() -> Node:
    names = [
        _RENAMED.get(name, name) for name in Counts.__dataclass_fields__ if name not in ("sent_outside", "seconds")
    ]
    counts = dict.fromkeys((*names, "sent_outside_window"), _COUNT)
    told = {
        name: {**node, "description": _MEASURED[name]} if name in _MEASURED else node for name, node in counts.items()
    }
    return _record({**told, "seconds": _NUMBER})


def _objective() -> Node:
    return _record(
        {
            "metric": _TEXT,
            "quantile": {**_NUMBER, "description": "null = a share"},
            "unit": _TEXT,
            "limit": _NUMBER,
            "at_least": {"type": "boolean", "description": "the limit is a lower one"},
            **dict.fromkeys(("measured", "lo", "hi", "n_eff"), _NUMBER),
            "n": _COUNT,
            "state": _words(get_args(State)),
        }
    )


def _outcome() -> Node:
    return _record(
        {
            "outcome": _words([outcome.value for outcome in Outcome]),
            "error_class": _or_null(_TEXT),
            "n": _COUNT,
            "example": _or_null(_TEXT),
        }
    )


def _percentiles() -> Node:
    row = _record(
        {
            "metric": {"anyOf": [_words([metric.name for metric in METRICS]), _STEP]},
            "unit": _TEXT,
            "phase": {**_TEXT, "description": "all = every measured phase together"},
            "n": _COUNT,
            **dict.fromkeys(STATISTICS, _NUMBER),
        }
    )
    return {**row, "description": "; ".join(map(_meaning, METRICS))}


def _meaning(metric: Metric) -> str:
    return f"{metric.name} [{metric.unit}] = {metric.formula}"
