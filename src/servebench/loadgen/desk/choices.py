"""Know what the Start form lets an operator choose: workload, endpoint, and who drives the load."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping

import msgspec

from servebench.core.errors import InputError
from servebench.wire.endpoints import ENDPOINTS
from servebench.workload.builtin import DATA_FILES, PREFIX
from servebench.workload.codec import decode_workload
from servebench.workload.model import Workload

GIVEN = "as started"
BY_HAND, AS_PLANNED = "by hand", "as planned"
READ_LIMIT_S = 30.0

WORKLOADS: tuple[str, ...] = (GIVEN, *sorted(name for name, place in DATA_FILES.items() if place.endswith(".yaml")))


def add_choices(parser: ArgumentParser) -> None:
    """Add the choices to Locust's options; its form shows them as dropdowns."""
    parser.add_argument(
        "--workload", choices=WORKLOADS, default=GIVEN, help="Prompts, lengths and gaps; shipped with servebench"
    )
    parser.add_argument(
        "--endpoint", choices=[GIVEN, *sorted(ENDPOINTS)], default=GIVEN, help="How the server is asked"
    )
    parser.add_argument(
        "--drive",
        choices=[BY_HAND, AS_PLANNED],
        default=BY_HAND,
        help="Who sets the rate: you, or the workload's own phases (then the rate above is not used)",
    )


def choice_fault(form: Mapping[str, str]) -> str | None:
    """Return what is wrong with the choices of a form, whose values nobody checks; None when nothing is."""
    known = {"workload": WORKLOADS, "endpoint": (GIVEN, *sorted(ENDPOINTS)), "drive": (BY_HAND, AS_PLANNED)}
    for name, values in known.items():
        if name in form and form[name] not in values:
            return f'{name} "{form[name]}" is none of {", ".join(values)}'
    return None


def chosen_workload(options: Namespace, given: Workload) -> Workload:
    """Return the workload that the form names; `given` is the one that the process was started with.

    Reads a shipped workload in a process of its own and blocks its greenlet meanwhile, READ_LIMIT_S at most. Raises
    InputError when it cannot be read, or a choice is none.
    """
    name, endpoint = getattr(options, "workload", GIVEN), getattr(options, "endpoint", GIVEN)
    fault = choice_fault({"workload": name, "endpoint": endpoint})
    if fault is not None:
        raise InputError(fault)
    workload = given if name == GIVEN else read_builtin(name)
    if endpoint == GIVEN:
        return workload
    return msgspec.structs.replace(workload, target=msgspec.structs.replace(workload.target, endpoint=endpoint))


def as_planned(options: Namespace, workload: Workload) -> bool:
    """Return whether the workload's own phases drive the load.

    Raises InputError where it has none.
    """
    if getattr(options, "drive", BY_HAND) != AS_PLANNED:
        return False
    if not workload.phases and workload.closed is None:
        msg = f"workload {workload.name} has no phases of its own: drive it by hand, or choose another"
        raise InputError(msg)
    return True


def read_builtin(name: str) -> Workload:
    """Return a shipped workload; the reader of YAML is too large for a process that times streams."""
    command = [sys.executable, "-m", "servebench.loadgen.desk.workload_process", PREFIX + name]
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=READ_LIMIT_S)  # noqa: S603 - our own
    except subprocess.TimeoutExpired as error:
        msg = f"workload {name} was not read in {READ_LIMIT_S:g} s; is the machine overloaded?"
        raise InputError(msg) from error
    if done.returncode:
        msg = f"workload {name}: {done.stderr.decode(errors='replace').strip()[-500:]}"
        raise InputError(msg)
    return decode_workload(done.stdout)
