"""The registry is one list that code and docs agree with."""

from pathlib import Path

import pytest

from servebench.metrics import METRICS, formulas
from servebench.metrics.docs import main, markdown

DOCS = Path(__file__).parents[3] / "docs"


def test_names_are_unique_and_every_metric_has_a_formula_in_code() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    of_kind = {
        kind: {metric.name for metric in METRICS if metric.kind == kind} for kind in ("request", "share", "chunk")
    }
    assert of_kind["request"] == set(formulas.REQUEST_FORMULAS)
    assert of_kind["share"] == set(formulas.SHARES)
    assert of_kind["chunk"] == {"chunk_gap"}


def test_every_metric_says_where_it_starts_stops_and_when_it_is_undefined() -> None:
    for metric in METRICS:
        assert metric.start_event
        assert metric.stop_event
        assert metric.undefined_when
        assert metric.scale > 0


@pytest.mark.parametrize("page", ["metrics.md", "dialects.md"])
def test_the_pages_in_docs_are_what_the_registry_writes(page: str) -> None:
    assert main(["--check", str(DOCS / page)]) == 0


def test_a_stale_page_is_told(tmp_path: Path) -> None:
    stale = tmp_path / "metrics.md"
    stale.write_text(markdown() + "more", encoding="utf-8")
    assert main(["--check", str(stale)]) == 1
