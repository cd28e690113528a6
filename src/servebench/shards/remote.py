"""Know how parts lie on a file system that is reached by URL: an object store, HDFS, or a mounted folder.

They lie under <url>/<run_id>/<kind>/<name>, as in a run folder, so DuckDB, Polars or Spark read them there.
"""

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from servebench.core.errors import HarnessError, InputError

KINDS = ("requests", "health", "clock", "spans")
BLOCK_BYTES = 1 << 20


class RemoteFolder:
    """The parts of one run at a URL. Its methods block; no gevent hub may call them."""

    def __init__(self, url: str, run_id: str) -> None:
        self._url = url
        self._filesystem, root = _open(url)
        self._root = f"{root.rstrip('/')}/{run_id}"

    def put(self, kind: str, path: Path) -> None:
        """Upload one part; it is whole under its name or not there. Doing it again replaces it by the same bytes.

        Raises HarnessError with URL and reason.
        """
        folder = f"{self._root}/{kind}"
        local = isinstance(self._filesystem, fs.LocalFileSystem | fs.SubTreeFileSystem)
        # An object appears when it is complete; a file of a folder appears at once, so it gets its name afterwards.
        name = f"{folder}/.{path.name}.tmp" if local else f"{folder}/{path.name}"
        try:
            self._filesystem.create_dir(folder, recursive=True)
            with path.open("rb") as source, self._filesystem.open_output_stream(name, compression=None) as target:
                while block := source.read(BLOCK_BYTES):
                    target.write(block)
            if local:
                self._filesystem.move(name, f"{folder}/{path.name}")
            (info,) = self._filesystem.get_file_info([f"{folder}/{path.name}"])
        except (OSError, pa.ArrowException) as error:
            msg = f"cannot write {path.name} to {self._url}: {error}; it stays in {path.parent}"
            raise HarnessError(msg) from error
        size = path.stat().st_size
        if info.size != size:
            msg = f"{self._url} holds {info.size} bytes of {path.name}, not {size}; it stays in {path.parent}"
            raise HarnessError(msg)

    def fetch(self, folder: Path) -> int:
        """Copy the parts that a run folder lacks into it; return how many.

        Raises HarnessError with URL and reason.
        """
        count = 0
        try:
            for kind in KINDS:
                selector = fs.FileSelector(f"{self._root}/{kind}", allow_not_found=True)
                for info in self._filesystem.get_file_info(selector):
                    target = folder / kind / info.base_name
                    if info.type == fs.FileType.File and target.suffix == ".parquet" and not target.exists():
                        self._copy(info.path, target)
                        count += 1
        except (OSError, pa.ArrowException) as error:
            msg = f"cannot read the parts of {folder.name} at {self._url}: {error}"
            raise HarnessError(msg) from error
        return count

    def _copy(self, source: str, target: Path) -> None:
        target.parent.mkdir(exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        with self._filesystem.open_input_stream(source, compression=None) as stream, temporary.open("wb") as file:
            while block := stream.read(BLOCK_BYTES):
                file.write(block)
        temporary.rename(target)


def check_url(url: str) -> None:
    """Raise InputError for a URL that no file system answers to, or that holds a secret."""
    _open(url)


def _open(url: str) -> "tuple[fs.FileSystem, str]":
    parts = urlsplit(url)
    if parts.username or parts.password:
        msg = f"{parts.scheme}:// with a key in it; keys come from the environment, e.g. AWS_ACCESS_KEY_ID"
        raise InputError(msg)
    try:
        return fs.FileSystem.from_uri(url)
    except (ValueError, OSError, pa.ArrowException) as error:
        msg = f"{url} is no place for parts: {error}; e.g. s3://bucket/runs, gs://bucket/runs, file:///mnt/runs"
        raise InputError(msg) from error
