"""Know the numbers that make one simulated engine faster, larger or more crowded than another."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from servebench.core.errors import Fault, SpecError

BLOCK_TOKENS = 16
"""Tokens in one KV block; also the grain of the prefix cache."""

_COSTS = ("step_base_ns", "prefill_ns_per_token", "decode_ns_per_sequence", "jitter")
_SIZES = ("max_num_seqs", "max_num_batched_tokens", "kv_blocks", "max_model_len")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParameters:
    """What one engine step costs and what the engine holds.

    A step lasts `step_base_ns + prefill tokens * prefill_ns_per_token + decoding sequences * decode_ns_per_sequence`,
    times exp(`jitter` * z) with z standard normal. The defaults are those of preset `demo`.
    """

    step_base_ns: int = 14_000_000
    prefill_ns_per_token: int = 45_000
    decode_ns_per_sequence: int = 200_000
    jitter: float = 0.05
    max_num_seqs: int = 40
    max_num_batched_tokens: int = 2_048
    kv_blocks: int = 4_096
    max_model_len: int = 16_384
    prefix_cache: bool = True

    def faults(self) -> list[Fault]:
        """Return everything that makes these parameters unusable; empty when they are sound."""
        least = dict.fromkeys(_COSTS, 0) | dict.fromkeys(_SIZES, 1)
        found = [
            Fault(place=name, message=f"{getattr(self, name)}: must be >= {least[name]}")
            for name in least
            if getattr(self, name) < least[name]
        ]
        if self.max_model_len > self.kv_blocks * BLOCK_TOKENS:
            message = f"{self.max_model_len} tokens do not fit into {self.kv_blocks} blocks of {BLOCK_TOKENS}"
            found.append(Fault(place="max_model_len", message=message))
        return found


PRESETS: dict[str, EngineParameters] = {
    # With 560 prompt and 80 answer tokens on average (log-normal, Poisson arrivals): 45 ms to the first token and 18 ms
    # per token at 5 requests/s, 58 and 24 at 10, saturated at 14. So a burst of 25/s shows queueing.
    "demo": EngineParameters(),
    # No time of its own: as fast as the process computes and sends. For measuring clients and the simulator itself.
    "fast": EngineParameters(
        step_base_ns=0,
        prefill_ns_per_token=0,
        decode_ns_per_sequence=0,
        jitter=0.0,
        max_num_seqs=1_024,
        max_num_batched_tokens=65_536,
        kv_blocks=65_536,
        max_model_len=32_768,
    ),
}


def engine_parameters(preset: str, changes: Mapping[str, str]) -> EngineParameters:
    """Return the parameters of `preset` with single values replaced, each given as text.

    Raises SpecError with every fault: an unknown preset or name, a value that is no number, an unusable combination.
    """
    if preset not in PRESETS:
        raise SpecError("sim", [Fault(place="--preset", message=f"{preset}: known are {', '.join(PRESETS)}")])
    base = PRESETS[preset]
    found: list[Fault] = []
    values: dict[str, int | float | bool] = {}
    known = {field.name for field in fields(EngineParameters)}
    for name, text in changes.items():
        if name not in known:
            found.append(Fault(place=f"--set {name}", message=f"unknown; known are {', '.join(sorted(known))}"))
            continue
        try:
            values[name] = _value(text, type(getattr(base, name)))
        except ValueError as error:
            found.append(Fault(place=f"--set {name}", message=str(error)))
    if not found:
        changed = replace(base, **values)  # type: ignore[arg-type]  # _value returns the type of each field
        found = changed.faults()
        if not found:
            return changed
    raise SpecError("sim", found)


def _value(text: str, kind: type) -> int | float | bool:
    if kind is bool:
        if text not in {"true", "false"}:
            raise ValueError(f"{text}: must be true or false")
        return text == "true"
    try:
        return float(text) if kind is float else int(text.replace("_", ""))
    except ValueError:
        raise ValueError(f"{text}: must be a number") from None
