"""Know the files that a workload names: where they are, and what is wrong with that."""

import re
from pathlib import Path

from servebench.core.errors import InputError
from servebench.core.units import format_duration
from servebench.workload.builtin import PREFIX, data_path, is_builtin
from servebench.workload.model import TraceSlice
from servebench.workload.places import Place, Wrong
from servebench.workload.spec_prompts import SHIPPED_TRACES, TraceSpec
from servebench.workload.traces import FOLDERS, read_trace, whole_seconds_ns

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


class Files:
    """Turns the paths of a file into those of the model, and collects what is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wrongs: list[Wrong] = []

    def path(self, path: str | None, default: str, place: Place, *, folder: bool = False) -> str:
        """Return a path as the model has it; None stands for the default. `folder`: a folder will do."""
        chosen = default if path is None else path
        chosen = chosen if is_builtin(chosen) else str((self.folder / chosen).absolute())
        try:
            there = data_path(chosen)
            if not (there.is_file() or (folder and there.is_dir())):
                self.wrongs.append(Wrong(place, _no_file(there, chosen, path or "", folder=folder)))
        except OSError as error:
            self.wrongs.append(Wrong(place, f"cannot read {_short(chosen)}: {error.strerror}"))
        except InputError as error:
            self.wrongs.append(Wrong(place, str(error)))
        return chosen

    def trace(self, spec: TraceSpec, place: Place) -> TraceSlice:
        """Return a whole trace as the model has it."""
        default = PREFIX + SHIPPED_TRACES.get(spec.kind, "")
        path = self.path(spec.path, default, (*place, "path"), folder=spec.kind in FOLDERS)
        return TraceSlice(kind=spec.kind, path=path, empty_output=spec.empty_output, clients=spec.clients or ())

    def length_ns(self, part: TraceSlice, place: Place) -> int:
        """Return how much of a trace lies behind a slice's start, in whole seconds; 0 after noting what is wrong."""
        if any(wrong.path[: len(place)] == place for wrong in self.wrongs):
            return 0
        try:
            trace = read_trace(part)
        except InputError as error:
            self.wrongs.append(Wrong((*place, "trace"), str(error)))
            return 0
        last_ns = int(trace.offset_ns[-1])
        if part.start_ns > last_ns:
            message = f"the trace ends at {format_duration(last_ns)}, before that"
            self.wrongs.append(Wrong((*place, "start"), message))
            return 0
        return whole_seconds_ns(trace, part.start_ns)


def _no_file(place: Path, chosen: str, written: str, *, folder: bool) -> str:
    """Return why a path is no file that can be read, which may be more than that nothing is there."""
    wanted = "a file or folder" if folder else "a file"
    if _URL.match(written):
        return f"{_short(written)} is a URL; {wanted} of this machine is wanted: download it"
    if place.is_dir():
        return f"{chosen} is a folder; a file is wanted"
    if place.exists():
        return f"{chosen} is a pipe or device; {wanted} is wanted, since it is read more than once"
    if place.is_symlink():
        return f"{chosen} is a link to nothing, or to itself"
    hint = "; ~ is not expanded here" if written.startswith("~") else ""
    return f"there is no file {'or folder ' if folder else ''}{chosen}{hint}"


def _short(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:197]}..."
