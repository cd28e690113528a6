"""Know how real engines are installed: a virtual environment for each, outside the project's own, kept between runs."""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("SERVEBENCH_ENGINES", ROOT / ".engines"))
INSTALL_LIMIT_S = 900


class UnavailableError(Exception):
    """An engine that cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What pip is asked for, one argument list after the other; `prepare` runs once afterwards, {home} filled in.

    `remove` are packages that come along and keep the engine from starting.
    """

    name: str
    pip: tuple[tuple[str, ...], ...]
    remove: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    python: tuple[tuple[int, int], ...] = ((3, 11), (3, 12), (3, 13))
    """Versions of Python that it has wheels for."""

    @property
    def home(self) -> Path:
        """Folder of its environment: another recipe under the same name gets another one."""
        digest = hashlib.sha256(
            repr((self.pip, *self.remove, self.prepare, sys.version_info[:2])).encode()
        ).hexdigest()[:8]
        return HOME / f"{self.name}-{digest}"


@cache
def installed(recipe: Recipe) -> Path:
    """Return the environment's folder, made on the first call. Raises UnavailableError with the reason."""
    home = recipe.home
    if (home / "complete").exists():
        return home
    if sys.version_info[:2] not in recipe.python:
        raise UnavailableError(f"{recipe.name} has no wheel for Python {sys.version_info[0]}.{sys.version_info[1]}")
    _step([sys.executable, "-m", "venv", "--clear", str(home)], recipe)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    for arguments in recipe.pip:
        _step([*pip, "install", *arguments], recipe)
    if recipe.remove:
        _step([*pip, "uninstall", "--yes", *recipe.remove], recipe)
    if recipe.prepare:
        filled = [part.format(home=home) for part in recipe.prepare]
        _step([str(home / "bin" / "python"), *filled], recipe)
    (home / "complete").touch()
    return home


def _step(command: list[str], recipe: Recipe) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{recipe.name}: {' '.join(command[:6])} … took over {INSTALL_LIMIT_S} s") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no word"]
        raise UnavailableError(f"{recipe.name} does not install here: {last[0][:300]}")
