"""Know how to read a workload file: the only place that opens one.

All faults of a file come in one SpecError, each with its line.
"""

from pathlib import Path

from servebench.core.errors import Fault, InputError, SpecError
from servebench.workload.builtin import LFS_HEAD, data_path
from servebench.workload.model import Workload
from servebench.workload.places import Spec, Wrong, checked, checked_as, place_of
from servebench.workload.resolve import resolve
from servebench.workload.yaml_tree import Tree, read_tree

MAX_BYTES = 1_000_000
WAY_OUT = "servebench schema > workload.schema.json gives every key to your editor"


def load_workload(path: Path | str) -> Workload:
    """Return the workload of a YAML file; `builtin:demo` is the one of the demo.

    Raises SpecError with every fault of the file, and InputError where it cannot be read.
    """
    place = data_path(str(path))
    return parse_workload(_text(place, str(path), "workload"), str(path), place.absolute().parent)


def load_spec(path: Path, kind: type[Spec], what: str) -> Spec:
    """Return the model of a YAML file of another kind; `what` names it in messages.

    Raises SpecError with every fault of the file, and InputError where it cannot be read.
    """
    tree = _mapping(_text(path, str(path), what), str(path))
    spec, wrongs = checked_as(kind, tree.value)
    wrongs = [*tree.wrongs, *wrongs]
    if spec is None or wrongs:
        raise SpecError(str(path), _faults(tree, wrongs))
    return spec


def parse_workload(text: str, source: str, folder: Path | None = None) -> Workload:
    """Return the workload in a YAML text; `source` names it in messages.

    Relative paths in it are those below `folder`; None: below the folder of `source`.
    Raises SpecError with every fault.
    """
    tree = _mapping(text, source)
    spec, wrongs = checked(tree.value)
    wrongs = [*tree.wrongs, *wrongs]
    if spec is None or wrongs:
        raise SpecError(source, _faults(tree, wrongs), WAY_OUT)
    resolved, wrongs = resolve(spec, Path(source).absolute().parent if folder is None else folder)
    if resolved is None:
        raise SpecError(source, _faults(tree, wrongs), WAY_OUT)
    return resolved


def _text(place: Path, shown: str, what: str) -> str:
    try:
        data = place.read_bytes()
    except OSError as error:
        msg = f"cannot read the {what} file {shown}: {error.strerror}"
        raise InputError(msg) from error
    if len(data) > MAX_BYTES:
        msg = f"{shown} has {len(data)} bytes; one file has at most {MAX_BYTES}"
        raise InputError(msg)
    if data.startswith(LFS_HEAD):
        msg = f"{shown} is a Git LFS pointer and not the {what}; try: git lfs pull"
        raise InputError(msg)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte {data[error.start]:#04x} at offset {error.start} is not UTF-8"
        raise SpecError(shown, [Fault(place="text", message=message, line=line)]) from error


def _mapping(text: str, source: str) -> Tree:
    tree = read_tree(text, source)
    if not isinstance(tree.value, dict):
        raise SpecError(source, [Fault(place="file", message="a mapping of keys is wanted", line=1)], WAY_OUT)
    return tree


def _faults(tree: Tree, wrongs: list[Wrong]) -> list[Fault]:
    """Return faults in the order of the file; one place has one fault, the first found."""
    first = {wrong.path: wrong for wrong in reversed(wrongs)}
    faults = [
        Fault(place=place_of(path), message=wrong.message, line=tree.line_of(path)) for path, wrong in first.items()
    ]
    return sorted(faults, key=lambda fault: (fault.line or 0, fault.place))
