"""Know the JSON Schema of a workload file, which editors use to complete and check it."""

from typing import Any

from servebench.workload.spec import WorkloadSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def workload_json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a workload file."""
    return {"$schema": DIALECT, **WorkloadSpec.model_json_schema(by_alias=True), "title": "servebench workload"}
