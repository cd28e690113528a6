"""Know how a user's own function becomes a rule: loaded from its file, called with the answer, its word understood."""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from servebench.acceptance.given import LONGEST_REASON, Given
from servebench.core.errors import InputError


class CheckFault(Exception):  # noqa: N818 - the word users read
    """A check, and not the answer, is at fault; the message says how."""


def own_rule(place: str, arguments: Mapping[str, Any]) -> Callable[[Given], str | None]:
    """Return the rule of `/path/file.py:function`; it is called with a `Given` and the arguments by name.

    True = the answer passes; False or a text = it does not, the text says why. The rule raises CheckFault for any other
    word, and whatever the function raises. Raises InputError for a file that cannot be loaded or has no such function.
    """
    path, _, name = place.rpartition(":")
    function = getattr(_module(Path(path)), name, None)
    if not callable(function):
        msg = f"{path} has no function {name}"
        raise InputError(msg)

    def rule(given: Given) -> str | None:
        word = function(given, **arguments)
        if word is True:
            return None
        if word is False:
            return f"python: {name}"
        if isinstance(word, str):
            return f"python: {' '.join(word.split())[:LONGEST_REASON] or name}"
        msg = f"{name} returned {type(word).__name__}; True, False or a text is wanted"
        raise CheckFault(msg)

    return rule


def _module(path: Path) -> ModuleType:
    """Return a file as a module, loaded once; modules beside it can be imported from it."""
    name = f"_servebench_own_{path.stem}_{abs(hash(str(path))):x}"
    if name in sys.modules:
        return sys.modules[name]
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"{path} cannot be loaded as Python"
        raise InputError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        msg = f"{path} cannot be loaded: {type(error).__name__}: {error}"
        raise InputError(msg) from error
    return module
