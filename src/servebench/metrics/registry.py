"""Know every metric, in the order of tables and documents."""

from collections.abc import Mapping

from servebench.metrics.definitions.flow import FLOW
from servebench.metrics.definitions.latency import LATENCY
from servebench.metrics.metric import Metric

METRICS: tuple[Metric, ...] = (*LATENCY, *FLOW)

METRIC_BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
