"""Know in words what planning did with what it found: the counts of `Schedule.notes`, told to people."""

from collections.abc import Mapping

_SIDES = {"input": "prompts", "output": "answers"}
_WORDS: dict[str, str] = {
    "clipped": "{count:,} {side} were longer than their maximum and are clipped to it",
    "dropped": "{count:,} requests are left out: their {side} are longer than the maximum",
    "scaled": "{count:,} {side} are scaled, so that the longest fits its maximum",
}
_NOTES: dict[str, str] = {
    "zero_output_left_out": "{count:,} rows of the trace have no tokens (failed calls) and are left out",
    "trace_steps_back": "{count:,} steps back in time in the trace: its rows were sorted",
    "trace_equal_times": "{count:,} rows of the trace share their time with another: they leave together",
    "trace_tick_ms": "the trace's clock has ticks of {count:,} ms; spread: true would undo them",
    "trace_spread_rows": "{count:,} rows that shared their time were spread over their tick",
    "warm_pass_left_out": "{count:,} prompts do not fit into the warm-up pass; give target.cache more duration or rate",
}
_SKIPPED = "prompts_skipped_"


def told(notes: Mapping[str, int]) -> list[str]:
    """Return one sentence for each note, in their order; a reason without words as it is."""
    return [_sentence(reason, count) for reason, count in notes.items()]


def _sentence(reason: str, count: int) -> str:
    if reason in _NOTES:
        return _NOTES[reason].format(count=count)
    if reason.startswith(_SKIPPED):
        why = reason.removeprefix(_SKIPPED).replace("_", " ")
        return f"{count:,} rows of the prompt file are skipped: {why}"
    what, _, side = reason.partition("_")
    if what in _WORDS and side in _SIDES:
        return _WORDS[what].format(count=count, side=_SIDES[side])
    return f"{reason}: {count:,}"
