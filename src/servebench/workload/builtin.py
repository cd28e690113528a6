"""Know the data files shipped in the package, and the bytes behind the paths of a workload.

A path in a workload is absolute, or `builtin:<name>`: the same words on every machine, wherever the package lies.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO

from servebench.core.errors import InputError

PREFIX = "builtin:"

DATA_FILES: dict[str, str] = {
    "azure-llm-2023-conv": "azure_llm_2023/AzureLLMInferenceTrace_conv.csv",
    "azure-llm-2023-code": "azure_llm_2023/AzureLLMInferenceTrace_code.csv",
    "mooncake-conversation": "mooncake_fast25/conversation_trace.jsonl",
    "ragpulse": "ragpulse",
    "servegen-deepseek-r1": "servegen/reason/deepseek-r1",
    "servegen-m-small": "servegen/language/m-small",
    "mt-bench": "prompts/mt_bench/question.jsonl",
    "humaneval": "prompts/humaneval/HumanEval.jsonl.gz",
    "oasst": "prompts/oasst_trees/en_100_tree.jsonl",
    "self-instruct": "prompts/self_instruct/user_oriented_instructions.jsonl",
    "shakespeare": "text/shakespeare_slice.txt",
    "azure-code": "workloads/azure-code.yaml",
    "azure-conv": "workloads/azure-conv.yaml",
    "bursty": "workloads/bursty.yaml",
    "cold-vs-warm": "workloads/cold-vs-warm.yaml",
    "demo": "workloads/demo.yaml",
    "diurnal-soak": "workloads/diurnal-soak.yaml",
    "long-context-prefix": "workloads/long-context-prefix.yaml",
    "multi-tenant": "workloads/multi-tenant.yaml",
    "rag-sessions": "workloads/rag-sessions.yaml",
    "steps-to-saturation": "workloads/steps-to-saturation.yaml",
}
"""Builtin name to file or folder below `servebench/workload/data`."""

LFS_HEAD = b"version https://git-lfs.github.com/spec/"
_GZIP_HEAD = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


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


@contextmanager
def open_data(path: str) -> Iterator[BinaryIO]:
    """Give the bytes behind a workload's path as a stream, unpacked where they are gzip, without a BOM.

    Raises InputError where the file cannot be read, or is the pointer that Git LFS leaves in place of the data.
    """
    try:
        with data_path(path).open("rb") as raw:
            packed = raw.peek(2)[:2] == _GZIP_HEAD
            with io.BufferedReader(gzip.GzipFile(fileobj=raw)) if packed else raw as stream:
                head = stream.peek(len(LFS_HEAD))
                if head.startswith(LFS_HEAD):
                    msg = f"{path} is a Git LFS pointer and not the data; try: git lfs pull"
                    raise InputError(msg)
                if head.startswith(_BOM):
                    stream.read(len(_BOM))
                yield stream
    except (OSError, EOFError, zlib.error) as error:
        msg = f"cannot read {path}: {getattr(error, 'strerror', None) or error}"
        raise InputError(msg) from error


def read_data(path: str) -> bytes:
    """Return the bytes behind a workload's path, like `open_data`."""
    with open_data(path) as stream:
        return stream.read()
