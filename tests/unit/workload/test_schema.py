"""The JSON Schema of a workload file says what the reader wants."""

import json

from servebench.workload.schema import workload_json_schema


def test_the_schema_is_json_and_names_the_keys_of_the_file() -> None:
    schema = json.loads(json.dumps(workload_json_schema()))
    assert set(schema["properties"]) == {
        "name",
        "seed",
        "target",
        "prompts",
        "load",
        "requests",
        "objectives",
        "accept",
        "stop",
    }
    assert set(schema["required"]) == {"name", "prompts", "load"}
    assert schema["additionalProperties"] is False


def test_the_schema_uses_the_words_of_the_file_and_durations_as_text() -> None:
    definitions = workload_json_schema()["$defs"]
    assert "from" in definitions["FixedLengths"]["properties"]
    assert definitions["SteadyPhase"]["properties"]["duration"]["type"] == "string"
    assert set(definitions["OpenLoad"]["properties"]["phases"]["items"]["discriminator"]["mapping"]) == {
        "steady",
        "steps",
        "burst",
        "ramp",
        "spike",
        "diurnal",
        "soak",
        "replay",
    }
