"""Know which runs stand on a side of a comparison, and which of them belong together."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from servebench.analysis.digest import Digest, examine
from servebench.core.errors import InputError
from servebench.core.outcomes import Status
from servebench.shards.manifest import MANIFEST_NAME, Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRun:
    """One run of a side."""

    folder: Path
    digest: Digest

    @property
    def manifest(self) -> Manifest:
        """`run.json`, completed."""
        return self.digest.manifest

    @property
    def status(self) -> str:
        """Return the status of its verdict."""
        verdict = self.manifest.verdict
        return verdict.status if verdict is not None else Status.INVALID.value


class Pair(NamedTuple):
    """Two runs of one schedule, one of each side."""

    base: SideRun
    candidate: SideRun


class Pairing(NamedTuple):
    """The pairs in order of time, and the runs that have no partner."""

    pairs: tuple[Pair, ...]
    alone: tuple[SideRun, ...]


def read_side(argument: str) -> tuple[SideRun, ...]:
    """Return the runs that an argument names: a run folder, several with commas between, or a folder of run folders.

    Raises InputError where it names none.
    """
    folders: list[Path] = []
    for text in filter(None, argument.split(",")):
        path = Path(text)
        if (path / MANIFEST_NAME).is_file():
            folders.append(path)
            continue
        inside = sorted(item.parent for item in path.glob(f"*/{MANIFEST_NAME}"))
        if not inside:
            msg = f"{text} is no run folder and holds none.\n  try: servebench compare runs/BASE runs/CANDIDATE"
            raise InputError(msg)
        folders += inside
    if not folders:
        msg = "a side of the comparison names no run.\n  try: servebench compare runs/BASE runs/CANDIDATE"
        raise InputError(msg)
    return tuple(SideRun(folder=folder, digest=examine(folder).digest) for folder in folders)


def pair_up(base: Sequence[SideRun], candidate: Sequence[SideRun]) -> Pairing:
    """Return runs of equal seed as pairs, the earliest of each side first."""
    pairs: list[Pair] = []
    waiting = sorted(candidate, key=_when)
    alone: list[SideRun] = []
    for run in sorted(base, key=_when):
        partner = next((other for other in waiting if other.manifest.seed == run.manifest.seed), None)
        if partner is None:
            alone.append(run)
        else:
            waiting.remove(partner)
            pairs.append(Pair(run, partner))
    return Pairing(tuple(pairs), (*alone, *waiting))


def _when(run: SideRun) -> tuple[str, str]:
    return run.manifest.created_utc, run.manifest.run_id


def in_blocks(pairing: Pairing) -> bool:
    """Return whether all runs of one side came before all of the other, so that a drift counts as a difference."""
    if len(pairing.pairs) < 2:
        return False
    base = [_when(pair.base) for pair in pairing.pairs]
    candidate = [_when(pair.candidate) for pair in pairing.pairs]
    return max(base) < min(candidate) or max(candidate) < min(base)
