"""Know how a run is drawn: plotly figures of load, latency and distributions, each with words and numbers beside it."""

from collections.abc import Sequence

from servebench.analysis.curve import CurvePoint
from servebench.analysis.engine_side import ServerSide
from servebench.analysis.objectives import Result
from servebench.analysis.plots.figure import Plot, Shading
from servebench.analysis.plots.overtime import LATENCY_BINS, client_plots, time_plots
from servebench.analysis.plots.server import server_plots
from servebench.analysis.plots.spread import distributions
from servebench.analysis.plots.steps import steps_plots
from servebench.analysis.plots.underload import load_plots
from servebench.analysis.saturation import Saturation
from servebench.analysis.source import RunData
from servebench.analysis.timeline import timeline
from servebench.analysis.windows import phase_windows

__all__ = ["Plot", "run_plots"]


def run_plots(
    run: RunData,
    points: Sequence[CurvePoint],
    results: Sequence[Result],
    side: ServerSide,
    found: Sequence[Saturation] = (),
) -> tuple[Plot, ...]:
    """Return the figures of a run in order of the report."""
    series, coarse = timeline(run), timeline(run, LATENCY_BINS)
    end_s = float(series.start_s[-1] + series.bin_s)
    shading = Shading(phase_windows(run), end_s)
    return (
        *load_plots(points, results, found),
        *steps_plots(run, points),
        *time_plots(run, series, coarse, shading),
        *server_plots(side, run, series, shading),
        *distributions(run),
        *client_plots(run.health, shading),
    )
