"""The JSON form of a workload is canonical, and reading it needs none of the heavy libraries."""

import hashlib
import json
import subprocess
import sys

import msgspec
import pytest

from servebench.core.errors import InputError
from servebench.workload.codec import decode_workload, encode_workload, workload_hash
from servebench.workload.load import load_workload


def test_a_workload_survives_the_way_through_json() -> None:
    demo = load_workload("builtin:demo")
    assert decode_workload(encode_workload(demo)) == demo
    assert json.loads(encode_workload(demo))["name"] == "demo"


def test_the_hash_does_not_depend_on_the_order_of_declared_keys() -> None:
    demo = load_workload("builtin:demo")
    one, two = (
        msgspec.structs.replace(demo, target=msgspec.structs.replace(demo.target, declared=declared))
        for declared in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})
    )
    assert workload_hash(one) == workload_hash(two) != workload_hash(demo)
    assert workload_hash(one) == hashlib.sha256(encode_workload(one)).hexdigest()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"name": 3}', b"\xff", b"[]"])
def test_bytes_that_hold_no_workload_are_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="no workload"):
        decode_workload(data)


def test_planning_and_drawing_load_no_pydantic_pandas_or_yaml() -> None:
    code = (
        "import sys\n"
        "import servebench.workload.codec, servebench.workload.draw, servebench.workload.describe\n"
        "import servebench.workload.prompts, servebench.workload.schedule\n"
        "heavy = {'pydantic', 'pandas', 'yaml', 'plotly', 'pyarrow', 'locust', 'gevent'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
