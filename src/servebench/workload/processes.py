"""Know how the laws of arrivals stand in a file and in the workload as understood."""

from typing import Any

from servebench.core.units import format_duration
from servebench.workload.arrivals import weibull_shape
from servebench.workload.model import Arrivals, Client
from servebench.workload.spec_arrivals import (
    ArrivalsSpec,
    GammaArrivals,
    MixArrivals,
    OnOffArrivals,
    WeibullArrivals,
)


def law_of(spec: ArrivalsSpec) -> Arrivals:
    """Return the law that a file means; a Weibull CV becomes its shape."""
    if isinstance(spec, GammaArrivals):
        return Arrivals(process="gamma", cv=float(spec.cv))
    if isinstance(spec, WeibullArrivals):
        shape = weibull_shape(spec.cv) if spec.cv is not None else spec.shape
        return Arrivals(process="weibull", shape=None if shape is None else float(shape))
    if isinstance(spec, OnOffArrivals):
        return Arrivals(process="onoff", on_ns=spec.on, off_ns=spec.off, inside=law_of(spec.inside))
    if isinstance(spec, MixArrivals):
        clients = (
            Client(name=client.name, weight=float(client.weight), arrivals=law_of(client.arrivals))
            for client in spec.clients
        )
        return Arrivals(process="mix", clients=tuple(clients))
    return Arrivals(process=spec.process)


def document_of_law(law: Arrivals) -> dict[str, Any]:
    """Return the keys of a file that give this law."""
    numbers = {"cv": law.cv, "shape": law.shape}
    lengths_ns = {"on": law.on_ns, "off": law.off_ns}
    document: dict[str, Any] = {
        "process": law.process,
        **{key: value for key, value in numbers.items() if value is not None},
        **{key: format_duration(value) for key, value in lengths_ns.items() if value is not None},
    }
    if law.inside is not None:
        document["inside"] = document_of_law(law.inside)
    if law.clients:
        document["clients"] = [
            {"name": client.name, "weight": client.weight, "arrivals": document_of_law(client.arrivals)}
            for client in law.clients
        ]
    return document
