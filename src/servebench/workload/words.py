"""Know how the values of a workload file are written: durations, shares, names; pydantic types for `spec`."""

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from servebench.core.units import NS_PER_S, format_duration, parse_duration_ns

LONGEST_NS = 366 * 86_400 * NS_PER_S
DURATION_PATTERN = r"^((\d+(\.\d+)?|\.\d+)(ns|us|ms|s|m|h|d))+$"
_SHARE_PATTERN = r"^\d+(\.\d+)?\s*%$"


def read_duration(value: object) -> int:
    """Return the nanoseconds of a duration as a file writes it; 0 is one.

    Raises ValueError, with an example, for a number without unit and whatever else is none.
    """
    if isinstance(value, str):
        duration_ns = parse_duration_ns(value)
        if duration_ns > LONGEST_NS:
            msg = f'"{value}" is longer than 366d'
            raise ValueError(msg)
        return duration_ns
    msg = "a duration is wanted, e.g. 30s, 1h30m, 250ms"
    if isinstance(value, int | float) and not isinstance(value, bool):
        msg = f'"{value}" has no unit; e.g. {value}s, {value}m'
    raise ValueError(msg)


def read_positive_duration(value: object) -> int:
    """Return the nanoseconds of a duration longer than 0.

    Raises ValueError like `read_duration`, and for 0.
    """
    duration_ns = read_duration(value)
    if duration_ns == 0:
        msg = f'"{value}" must be longer than 0'
        raise ValueError(msg)
    return duration_ns


def read_share(value: object) -> float:
    """Return a share of 1 written as `1%` or 0.01.

    Raises ValueError outside 0 to 1 and for what is no number.
    """
    share: float | None = None
    if isinstance(value, str) and value.rstrip().endswith("%"):
        share = _number(value.rstrip()[:-1])
        share = None if share is None else share / 100
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    if share is None or not 0 <= share <= 1:
        msg = f'"{value}" is no share from 0 to 1; e.g. 1%, 0.01'
        raise ValueError(msg)
    return share


def read_declared(value: object) -> str:
    """Return a declared condition as text: `0.32` and "0.32" declare the same.

    Raises ValueError for what is neither text nor number.
    """
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        # A reader may hand on how a number was written: version 1.10 is not 1.1.
        return str(getattr(value, "text", value))
    msg = "a text or a number is wanted"
    raise ValueError(msg)


def read_param(value: object) -> object:
    """Return a value that may stand in a request's body, as JSON has it: plain numbers, lists, mappings.

    Raises ValueError for what JSON has no form for.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            msg = f"{value} is not a finite number"
            raise ValueError(msg)
        return float(value)  # a reader's own number also knows how it was written, which no encoder takes
    if isinstance(value, tuple | list):
        return [read_param(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: read_param(item) for key, item in value.items()}
    if value is not None and not isinstance(value, str | int):
        msg = "a text, a number, true, false, null, a list or a mapping is wanted"
        raise ValueError(msg)
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_DURATION_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": DURATION_PATTERN, "examples": ["30s", "1h30m", "250ms"]}
)

Duration = Annotated[
    int, BeforeValidator(read_positive_duration), PlainSerializer(format_duration, return_type=str), _DURATION_SCHEMA
]
DurationOrZero = Annotated[
    int, BeforeValidator(read_duration), PlainSerializer(format_duration, return_type=str), _DURATION_SCHEMA
]
Share = Annotated[
    float,
    BeforeValidator(read_share),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": _SHARE_PATTERN}, {"type": "number", "minimum": 0, "maximum": 1}]}
    ),
]
Declared = Annotated[str, BeforeValidator(read_declared), WithJsonSchema({"type": ["string", "number"]})]
Param = Annotated[
    Any,
    BeforeValidator(read_param),
    WithJsonSchema({"type": ["string", "number", "boolean", "null", "array", "object"]}),
]
Rate = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
