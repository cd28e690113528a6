"""Know the metrics: what each is, how it is computed, and when its percentiles may be shown."""

from servebench.metrics.columns import ChunkColumns, RequestColumns, Window
from servebench.metrics.metric import Metric
from servebench.metrics.quantiles import enough, needed, percentile
from servebench.metrics.registry import METRIC_BY_NAME, METRICS

__all__ = [
    "METRICS",
    "METRIC_BY_NAME",
    "ChunkColumns",
    "Metric",
    "RequestColumns",
    "Window",
    "enough",
    "needed",
    "percentile",
]
