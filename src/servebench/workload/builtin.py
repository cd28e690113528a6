"""Know the data files shipped in the package, and the bytes behind the paths of a workload.

A path in a workload is absolute, or `builtin:<name>`: the same words on every machine, wherever the package lies.
"""

from importlib.resources import files
from pathlib import Path

from servebench.core.errors import InputError

PREFIX = "builtin:"

DATA_FILES: dict[str, str] = {
    "azure-llm-2023-conv": "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    "mt-bench": "prompts/mt_bench/question.jsonl",
    "self-instruct": "prompts/self_instruct/user_oriented_instructions.jsonl",
    "shakespeare": "text/shakespeare_slice.txt",
    "demo": "workloads/demo.yaml",
}
"""Builtin name to place below `servebench/workload/data`."""

_LFS_HEAD = b"version https://git-lfs.github.com/spec/"


def is_builtin(path: str) -> bool:
    """Say whether a path of a workload names shipped data."""
    return path.startswith(PREFIX)


def data_path(path: str) -> Path:
    """Return where the bytes of a workload's path lie on this machine.

    Raises InputError for a builtin name that there is not.
    """
    if not is_builtin(path):
        return Path(path)
    name = path.removeprefix(PREFIX)
    place = DATA_FILES.get(name)
    if place is None:
        msg = f'"{path}" is not shipped with servebench; there are: {", ".join(PREFIX + known for known in DATA_FILES)}'
        raise InputError(msg)
    return Path(str(files("servebench.workload").joinpath("data", *place.split("/"))))


def read_data(path: str) -> bytes:
    """Return the bytes behind a workload's path.

    Raises InputError where the file cannot be read, or is the pointer that Git LFS leaves in place of the data.
    """
    try:
        data = data_path(path).read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise InputError(msg) from error
    if data.startswith(_LFS_HEAD):
        msg = f"{path} is a Git LFS pointer and not the data; try: git lfs pull"
        raise InputError(msg)
    return data
