"""Know a run as a notebook sees it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from servebench.analysis.curve import CurvePoint
from servebench.analysis.digest import Digest, Examined, examine
from servebench.analysis.findings import Findings
from servebench.analysis.frames import chunks_frame, curve_frame, requests_frame, table_frame
from servebench.analysis.numbers import count
from servebench.analysis.plots import Plot, run_plots
from servebench.analysis.steps import step_metric
from servebench.analysis.tables import percentile_table
from servebench.analysis.words import verdict_glyph, verdict_words
from servebench.core.errors import InputError
from servebench.core.outcomes import Status
from servebench.metrics import METRIC_BY_NAME
from servebench.shards.manifest import Manifest, Verdict


class InvalidRunWarning(UserWarning):
    """The numbers of the opened run must not be used."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run folder, read. Nothing is written; frames are made when first asked for."""

    folder: Path
    examined: Examined = field(repr=False)

    @property
    def digest(self) -> Digest:
        """Everything that is said about the run."""
        return self.examined.digest

    @property
    def manifest(self) -> Manifest:
        """`run.json`, completed."""
        return self.digest.manifest

    @property
    def verdict(self) -> Verdict:
        """Whether the numbers may be used, and why not."""
        verdict = self.manifest.verdict
        if verdict is None:
            msg = "a digest carries a verdict"
            raise ValueError(msg)
        return verdict

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request row, times int64 ns of the run clock; metrics as `ttft_ns`, `tpot_ns_per_token`, …."""
        return requests_frame(self.examined.run)

    def chunks(self) -> pd.DataFrame:
        """Return one row per event of every response."""
        return chunks_frame(self.examined.run)

    def table(
        self,
        by: Sequence[str] | str = ("phase",),
        *,
        metric: str | None = None,
        all_quantiles: bool = False,
        warmup: bool = False,
    ) -> pd.DataFrame:
        """Return the percentile table in display units; equal to `servebench table`.

        `metric` is one of the registry, or `step:NAME` of a step of this run's answers. Raises InputError for an
        unknown column or metric, naming those that exist.
        """
        known = (*METRIC_BY_NAME, *(step_metric(step).name for step in self.examined.run.steps))
        if metric is not None and metric not in known:
            msg = f'no metric "{metric}"; there are {", ".join(known)}'
            raise InputError(msg)
        names = (by,) if isinstance(by, str) else tuple(by)
        frame = table_frame(percentile_table(self.examined.run, names, all_quantiles=all_quantiles, warmup=warmup))
        return frame if metric is None else frame[frame["metric"] == metric].reset_index(drop=True)

    def curve(self) -> pd.DataFrame:
        """Return throughput and latency under load, one row per measured level."""
        return curve_frame(self.points)

    def plot(self, name: str = "throughput") -> go.Figure:
        """Return a figure of the report, in its colours.

        Raises InputError for an unknown name, naming those that exist.
        """
        if name not in self._plots:
            msg = f'no plot "{name}"; there are {", ".join(self._plots)}'
            raise InputError(msg)
        return self._plots[name].figure

    @cached_property
    def _plots(self) -> dict[str, Plot]:
        found = self.digest
        plots = run_plots(self.examined.run, found.curve, found.objectives, found.server, found.findings.saturation)
        return {plot.name: plot for plot in plots}

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """The levels behind `curve()`."""
        return self.digest.curve

    @property
    def findings(self) -> Findings:
        """What the run shows over time and load: saturation, recovery, drift, stalls, load as planned and as sent."""
        return self.digest.findings

    def _card(self) -> list[tuple[str, str]]:
        counts = self.digest.counts
        planned, rows = count(self.manifest.planned), count(self.manifest.rows)
        lost = count(self.digest.accounting.lost_count)
        return [
            ("run", self.manifest.run_id),
            ("verdict", f"{verdict_glyph(self.verdict)} {verdict_words(self.verdict)}"),
            *(("", reason) for reason in self.verdict.reasons),
            *(("objective", f"{result.sentence}: {result.state}") for result in self.digest.objectives),
            ("requests", f"planned {planned}, rows {rows}, lost {lost}"),
            ("measured", f"{count(counts.rows)}, of them ok {count(counts.ok)}"),
            ("phases", ", ".join(phase.name for phase in self.digest.phases)),
            ("next", "run.table(), run.curve(), run.plot(), run.requests, run.chunks()"),
        ]

    def __repr__(self) -> str:
        return "\n".join(f"{name:<10} {text}" for name, text in self._card())

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self._card()
        )
        return f"<table>{rows}</table>"


def open_run(path: str | PathLike[str]) -> Run:
    """Read a run folder, merged or not; warns once where its numbers must not be used.

    Raises ShardError where the folder is no run folder.
    """
    run = Run(folder=Path(path), examined=examine(Path(path)))
    if run.verdict.status == Status.INVALID:
        reasons = "; ".join(run.verdict.reasons)
        warnings.warn(f"{run.manifest.run_id} is INVALID: {reasons}", InvalidRunWarning, stacklevel=2)
    return run
