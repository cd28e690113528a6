"""Builders of workloads for these tests."""

from pathlib import Path

from servebench.core.errors import Fault, SpecError
from servebench.workload.model import Workload
from servebench.workload.places import checked, place_of
from servebench.workload.resolve import resolve
from servebench.workload.yaml_tree import read_tree


def understood(text: str, folder: Path | None = None) -> Workload:
    """Return a workload as understood, also where no version of the load generator drives it yet."""
    spec, wrongs = checked(read_tree(text, "test.yaml").value)
    workload, more = resolve(spec, folder or Path()) if spec is not None else (None, [])
    if workload is None:
        faults = [Fault(place=place_of(wrong.path), message=wrong.message) for wrong in [*wrongs, *more]]
        raise SpecError("test.yaml", faults)
    return workload
