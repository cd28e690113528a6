"""Know the plots of several runs on the same axes: one colour a run."""

from collections.abc import Sequence
from typing import NamedTuple

from servebench.analysis import palette
from servebench.analysis.digest import Digest
from servebench.analysis.objectives import Result
from servebench.analysis.plots.figure import Plot
from servebench.analysis.plots.throughput import Mark
from servebench.analysis.plots.tracks import Of, tracks_of
from servebench.analysis.plots.underload import curve_plots


class Labelled(NamedTuple):
    """A run under the name it has among others; `colour` is its place in the palette, `legend` whose it is there."""

    label: str
    digest: Digest
    colour: int
    legend: str


def several_curves(runs: Sequence[Labelled]) -> tuple[Plot, ...]:
    """Return the plots under load of all runs; none where no run has a measured level."""
    tracks = [track for run in runs for track in tracks_of(run.digest.curve, Of(run.label, run.colour, run.legend))]
    if not tracks:
        return ()
    alone = len({run.colour for run in runs}) == len(runs)
    marks = [
        Mark(found, palette.CYCLE[run.colour % len(palette.CYCLE)], run.label)
        for run in runs
        for found in run.digest.findings.saturation
        if alone  # bands of one colour would hide each other
    ]
    return curve_plots(tracks, marks, _shared_limits(runs), "track")


def _shared_limits(runs: Sequence[Labelled]) -> list[Result]:
    """Return the objectives on quantiles that all runs have with the same limit."""
    keys = [{(r.metric.name, r.quantile, r.limit) for r in run.digest.objectives} for run in runs]
    shared = set.intersection(*keys) if keys else set()
    return [
        r
        for r in runs[0].digest.objectives
        if r.quantile is not None and (r.metric.name, r.quantile, r.limit) in shared
    ]
