"""Know the files that a workload names: where they are, and what is wrong with that."""

from pathlib import Path

from servebench.core.errors import InputError
from servebench.core.units import format_duration
from servebench.workload.builtin import data_path, is_builtin
from servebench.workload.places import Place, Wrong
from servebench.workload.traces import read_trace, whole_seconds_ns


class Files:
    """Turns the paths of a file into those of the model, and collects what is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wrongs: list[Wrong] = []

    def path(self, path: str | None, default: str, place: Place) -> str:
        """Return a path as the model has it; None stands for the default."""
        chosen = default if path is None else path
        chosen = chosen if is_builtin(chosen) else str((self.folder / chosen).absolute())
        try:
            if not data_path(chosen).is_file():
                self.wrongs.append(Wrong(place, f"there is no file {chosen}"))
        except InputError as error:
            self.wrongs.append(Wrong(place, str(error)))
        return chosen

    def length_ns(self, path: str, start_ns: int, place: Place) -> int:
        """Return how much of a trace lies behind a start, in whole seconds; 0 after noting what is wrong."""
        if any(wrong.path[: len(place)] == place for wrong in self.wrongs):
            return 0
        try:
            trace = read_trace(path)
        except InputError as error:
            self.wrongs.append(Wrong((*place, "trace"), str(error)))
            return 0
        if start_ns > int(trace.offset_ns[-1]):
            message = f"the trace ends at {format_duration(int(trace.offset_ns[-1]))}, before that"
            self.wrongs.append(Wrong((*place, "start"), message))
            return 0
        return whole_seconds_ns(trace, start_ns)
