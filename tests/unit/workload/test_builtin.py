"""The shipped data is what its notices say, byte for byte."""

import hashlib
from pathlib import Path

import pytest

from servebench.core.errors import InputError
from servebench.workload.builtin import DATA_FILES, data_path, read_data

SUMS = {
    "azure-llm-2023-conv": "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
    "azure-llm-2023-code": "46688c7aebd4719fb4fb5b47347f2d49d42bcec7a7f1ccc1efd1d51d48ce30a7",
    "mooncake-conversation": "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
    "oasst": "9362af0f6bc0bc0dd4da6317d516d34a90dd22c12794181cff54da50353b6e3e",
    "mt-bench": "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
    "self-instruct": "9e0b4ed6ae38138ca5b2e49fd928b52abae12a2e6562328b837cbc3586bd4075",
    "shakespeare": "03acb65af20339468620ae934c9b4965355c33b8b42c997a7e80a10a6da6cc67",
}
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", SUMS)
def test_a_shipped_file_has_the_digest_of_its_source(name: str) -> None:
    assert hashlib.sha256(read_data(f"builtin:{name}")).hexdigest() == SUMS[name]


def test_line_ends_of_the_shipped_trace_are_untouched() -> None:
    data = read_data("builtin:azure-llm-2023-conv")
    assert data.count(b"\r\n") == 19_366
    assert not data.endswith(b"\n")


@pytest.mark.parametrize("name", DATA_FILES)
def test_a_builtin_name_is_a_file_or_a_folder_of_the_package(name: str) -> None:
    assert data_path(f"builtin:{name}").exists()


def test_an_unknown_builtin_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="builtin:mt-bench"):
        data_path("builtin:nothing")


def test_the_demo_in_the_package_is_the_one_beside_the_source() -> None:
    assert read_data("builtin:demo") == (ROOT / "workloads" / "demo.yaml").read_bytes()


def test_every_shipped_data_file_is_named_in_the_notice() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for place in DATA_FILES.values():
        assert place in notice or place.startswith("workloads/")
