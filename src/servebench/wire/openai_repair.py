"""Know in which other types OpenAI-like servers send what the two OpenAI dialects read, and make them right in place.

This path is taken only after the typed decoder refused an event; what cannot be made right is left for it to refuse.
"""

from typing import Any

from servebench.wire.dialect import as_json, listed

_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "reasoning_tokens",
)
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")


def repair_envelope(value: dict[str, Any]) -> None:
    """Put numbers that came as text, reasons that came as objects and the like into the dialect's types."""
    if not isinstance(value.get("model"), str):
        value.pop("model", None)
    if not isinstance(value.get("x_groq"), dict):
        value.pop("x_groq", None)
    _repair_usage(value)
    for choice in listed(value.get("choices")):
        if isinstance(choice, dict):
            choice.pop("logprobs", None)
            choice["index"] = whole_number(choice.get("index"))
            choice["finish_reason"] = _reason(choice.get("finish_reason"))
            _repair_usage(choice)


def repair_tools(said: dict[str, Any]) -> None:
    """Make arguments text that came as an object, and drop calls that are none."""
    calls = [call for call in listed(said.get("tool_calls")) if isinstance(call, dict)]
    said["tool_calls"] = calls
    for function in (*(call.get("function") for call in calls), said.get("function_call")):
        if isinstance(function, dict) and not isinstance(function.get("arguments"), str | None):
            function["arguments"] = as_json(function["arguments"])


def whole_number(value: object) -> int | None:
    """Return a count that may have come as a float or as text; None for anything else."""
    try:
        return int(float(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        return None


def _repair_usage(holder: dict[str, Any]) -> None:
    usage = holder.get("usage")
    if not isinstance(usage, dict):
        holder.pop("usage", None)
        return
    for name in _DETAILS:
        details = usage.get(name)
        if isinstance(details, dict):
            _repair_counts(details)
        else:
            usage.pop(name, None)
    _repair_counts(usage)


def _repair_counts(counts: dict[str, Any]) -> None:
    for name in _COUNTS:
        if name in counts:
            counts[name] = whole_number(counts[name])


def _reason(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("type")
    return value if isinstance(value, str | None) else as_json(value)
