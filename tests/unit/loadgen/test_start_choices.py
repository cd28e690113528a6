"""What the Start form lets choose."""

from argparse import ArgumentParser, Namespace

import pytest

from servebench.core.errors import InputError
from servebench.loadgen.desk.choices import AS_PLANNED, WORKLOADS, add_choices, as_planned, chosen_workload
from servebench.loadgen.master.interactive import interactive_workload
from servebench.workload.codec import encode_workload
from servebench.workload.load import load_workload


def options(*arguments: str) -> Namespace:
    parser = ArgumentParser()
    add_choices(parser)
    return parser.parse_args(arguments)


def test_without_a_choice_the_run_is_what_the_process_was_started_with() -> None:
    given = interactive_workload()
    assert chosen_workload(options(), given) == given
    assert not as_planned(options(), given)


def test_a_shipped_workload_is_the_one_that_its_file_says() -> None:
    found = chosen_workload(options("--workload", "demo"), interactive_workload())
    assert encode_workload(found) == encode_workload(load_workload("builtin:demo"))
    assert as_planned(options("--drive", AS_PLANNED), found)


def test_an_endpoint_changes_nothing_else() -> None:
    given = interactive_workload()
    found = chosen_workload(options("--endpoint", "openai-completions"), given)
    assert found.target.endpoint == "openai-completions"
    assert found.prompts == given.prompts


def test_load_without_phases_cannot_drive_itself() -> None:
    with pytest.raises(InputError, match="has no phases of its own"):
        as_planned(options("--drive", AS_PLANNED), interactive_workload())


@pytest.mark.parametrize(("name", "value"), [("workload", "../etc/passwd"), ("endpoint", "gopher")])
def test_a_form_that_names_something_else_is_refused(name: str, value: str) -> None:
    made = options()
    setattr(made, name, value)  # the form's values are not checked by argparse
    with pytest.raises(InputError, match="is none of"):
        chosen_workload(made, interactive_workload())


def test_there_is_a_choice_of_workloads() -> None:
    assert {"demo", "bursty", "diurnal-soak"} < set(WORKLOADS)
