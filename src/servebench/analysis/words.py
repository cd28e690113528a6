"""Know the fixed words of a verdict, in the summary, the report and the notebook alike."""

from servebench.analysis.numbers import count
from servebench.analysis.source import workload_of
from servebench.core.outcomes import Status
from servebench.shards.manifest import Manifest, Verdict

_OBJECTIVES = {
    "met": "objectives met",
    "missed": "objectives missed",
    "undecided": "objectives undecided",
    "none": "no objectives set",
}
STATE_GLYPHS = {"met": "✓", "close": "~", "missed": "✗", "undecided": "?", "too few samples": "?"}


def verdict_words(verdict: Verdict) -> str:
    """Return the verdict line, such as `VALID, objectives met` or `INVALID: do not use these numbers`."""
    if verdict.status == Status.INTERRUPTED:
        return f"INTERRUPTED, {_OBJECTIVES[verdict.objectives]} up to the stop"
    if not verdict.valid:
        return "INVALID: do not use these numbers"
    return f"VALID, {_OBJECTIVES[verdict.objectives]}"


def verdict_glyph(verdict: Verdict) -> str:
    """Return the mark that stands beside the words."""
    if not verdict.valid:
        return "!"
    return {"missed": "✗", "undecided": "?"}.get(verdict.objectives, "✓")


def closed_users(manifest: Manifest) -> str | None:
    """Return who makes a closed load, such as `8 users`; None where requests have planned times or come by hand."""
    if manifest.engine != "closed":
        return None
    workload = workload_of(manifest)
    users = workload.closed.users if workload is not None and workload.closed is not None else None
    return f"{count(users)} user{'' if users == 1 else 's'}"


def printable(text: str) -> str:
    """Return text from a server or file without control characters, for a terminal line."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
