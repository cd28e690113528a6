"""Know the conditions of a run and how to repeat it, without secrets."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from servebench.analysis.digest import Digest
from servebench.analysis.numbers import UNDEFINED, count
from servebench.analysis.words import closed_users
from servebench.shards.manifest import Manifest

MOST_LOST_SHOWN = 20


def _part(workload: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401 - JSON
    """Return a member deep in the workload's JSON, None where it is not there."""
    found: Any = workload
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _model(found: Digest) -> str:
    return found.model or _part(found.manifest.workload, "target", "model") or "model not named"


def _planned(manifest: Manifest) -> str:
    users = closed_users(manifest)
    if users is not None:
        return f"no times: closed load of {users}, {count(manifest.planned)} requests"
    return f"{count(manifest.planned)} of {count(manifest.planned_total)} in the whole schedule"


def _cache(found: Digest) -> str:
    return str(_part(found.manifest.workload, "target", "cache") or "undeclared")


def _declared(found: Digest) -> dict[str, str]:
    declared = found.manifest.declared or _part(found.manifest.workload, "target", "declared") or {}
    return {str(name): str(value) for name, value in declared.items()}


def conditions_line(found: Digest) -> str:
    """Return model, declared conditions and cache state in one line."""
    return " · ".join([_model(found), *_declared(found).values(), f"cache {_cache(found)}"])


def conditions(found: Digest) -> tuple[tuple[str, str], ...]:
    """Return name and value of each condition."""
    manifest = found.manifest
    hosts = ", ".join(f"{worker.worker} on {worker.host} ({worker.state})" for worker in manifest.workers)
    lost = ", ".join(
        f"{item.first}-{item.last} ({item.worker or 'unknown'}: {item.cause})"
        for item in found.accounting.lost[:MOST_LOST_SHOWN]
    )
    if len(found.accounting.lost) > MOST_LOST_SHOWN:
        lost += f" and {count(len(found.accounting.lost) - MOST_LOST_SHOWN)} further ranges, all in run.json"
    pairs = [
        ("target", manifest.target_url),
        ("model", _model(found)),
        *_declared(found).items(),
        ("cache", _cache(found)),
        ("engine of arrivals", manifest.engine),
        ("seed", str(manifest.seed)),
        ("schedule hash", manifest.schedule_hash or UNDEFINED),
        ("workload hash", manifest.workload_hash),
        ("workers", hosts or UNDEFINED),
        ("planned", _planned(manifest)),
        ("rows", f"{count(manifest.rows)} in {count(len(manifest.shards))} parts"),
        ("lost", lost or "none"),
        ("output tokens by", found.tokens.words),
        *(("token counts compared", ratio.sentence) for ratio in found.tokens.ratios),
        *_made_by(found),
        ("stopped", manifest.stop_cause or "the master ended without a word"),
    ]
    return tuple(pairs)


def _made_by(found: Digest) -> tuple[tuple[str, str], ...]:
    """Return which locustfile made the answers; nothing where requests went to the service itself."""
    code = found.manifest.observed.get("locustfile")
    return (("answers made by", f"{code.get('name')}, sha256 {code.get('sha256')}"),) if isinstance(code, dict) else ()


def command(found: Digest) -> str:
    """Return the command line of the run as it can be pasted."""
    said = found.manifest.observed.get("command")
    if isinstance(said, list):
        return shlex.join(without_secrets(str(word)) for word in said)
    return f"servebench run workload.yaml --url {shlex.quote(found.manifest.target_url)}"


def without_secrets(word: str) -> str:
    """Return a word of a command line without the userinfo and query of a URL in it."""
    bare = re.sub(r"://[^/?#\s]*@", "://", word)
    return bare.partition("?")[0] if "://" in bare else bare
