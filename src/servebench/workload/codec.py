"""Know the JSON form of a workload: what travels to workers, stands in the manifest and is hashed.

Only msgspec here, so that a worker that decodes a workload loads no pydantic and no YAML.
"""

import hashlib

import msgspec

from servebench.core.errors import InputError
from servebench.workload.model import Workload

_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Workload)


def encode_workload(workload: Workload) -> bytes:
    """Return the canonical JSON: fields in the order of the model, free mappings by key, no blanks."""
    return _ENCODER.encode(workload)


def decode_workload(data: bytes) -> Workload:
    """Return the workload in JSON that `encode_workload` wrote.

    Raises InputError where the bytes hold no workload.
    """
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"these bytes hold no workload of this version: {error}"
        raise InputError(msg) from error


def workload_hash(workload: Workload) -> str:
    """Return the sha256 of the canonical JSON, 64 hex digits."""
    return hashlib.sha256(encode_workload(workload)).hexdigest()
