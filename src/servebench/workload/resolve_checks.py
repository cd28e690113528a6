"""Know how the checks of a file become complete: its schemas read and proved to be schemas, its functions found."""

from collections.abc import Iterable

from servebench.workload.checks import Check, complete_check
from servebench.workload.files import Files
from servebench.workload.places import Wrong


def checks_of_spec(checks: Iterable[Check], files: Files) -> tuple[Check, ...]:
    """Return the checks of a workload; what is wrong with a file of one is noted in `files`."""
    found = []
    for number, check in enumerate(checks):
        place = ("accept", number)
        try:
            complete = complete_check(check, files.folder)
            prove_schemas(complete)
        except ValueError as error:
            files.wrongs.append(Wrong(place, str(error)))
        else:
            found.append(complete)
    return tuple(found)


def prove_schemas(check: Check) -> None:
    """Raise ValueError for a schema that is none, as its own draft says."""
    for name, schema in (("json_schema", check.json_schema), ("schema", check.schema)):
        if isinstance(schema, dict):
            import jsonschema_rs  # only where there is a schema: 37 ms

            try:
                jsonschema_rs.meta.validate(schema)
            except (jsonschema_rs.ValidationError, ValueError) as error:
                msg = f"{name} is no JSON Schema: {str(error).splitlines()[0]}"
                raise ValueError(msg) from None
