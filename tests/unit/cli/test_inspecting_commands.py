"""The applications of single commands are those of the whole command line, also where typer is not imported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from elasticdl.cli import exit_codes, inspecting_commands, main
from elasticdl.cli.__main__ import INSPECTING
from elasticdl.cli.application import new_application
from elasticdl.cli.inspecting_commands import application_of
from elasticdl.cli.options import command, plain_command
from elasticdl.shared.errors import UserError

FUNCTIONS = {each.__name__: each for each in (*inspecting_commands.FIRST, *inspecting_commands.LAST)}
VALUES = ("1", "0", "17", "-1", "1.5", "1e3", "99999999999", "", "x", "train", "a b", "=", "é")
WORDS = ("job", "job.edl", "task", "17", "-1", "--", "-h", "-j", "--help", "--debug", "--json", "--jso", "--verify")


@pytest.mark.parametrize("name", sorted(INSPECTING))
def test_a_command_has_the_same_help_by_itself(name: str) -> None:
    alone, whole = (CliRunner().invoke(app, [name, "--help"]) for app in (application_of(name), main.app))
    assert alone.exit_code == 0
    assert alone.output == whole.output


def recorder(name: str, found: list[dict[str, Any]]) -> Callable[..., None]:
    """A command that only notes what it is called with."""

    @functools.wraps(FUNCTIONS[name])
    def note(**values: Any) -> None:
        found.append(values)

    return note


def read(run: Callable[[], object], found: list[dict[str, Any]]) -> object:
    """The values of a command line, or what is wrong with one."""
    try:
        run()
    except UserError as error:
        return str(error)
    return found.pop()


def read_by_typer(name: str, arguments: list[str]) -> object:
    found: list[dict[str, Any]] = []
    app = new_application()
    command(app)(recorder(name, found))

    def run() -> None:
        result = CliRunner().invoke(app, [name, *arguments])
        if result.exception is not None:
            raise result.exception

    return read(run, found)


def arguments_of(name: str) -> st.SearchStrategy[list[str]]:
    """Command lines of a command, of which many are wrong."""
    names = [f"--{option}" for option in ("evaluations", "limit", "epoch", "slowest", "worker", "purpose", "percent")]
    names += [f"--{option}" for option in ("port", "until", "run_dir", "namespace", "workers", "no-failures", "html")]
    named = st.sampled_from(names).flatmap(
        lambda option: st.sampled_from(VALUES).flatmap(
            lambda value: st.sampled_from([[option], [option, value], [f"{option}={value}"]])
        )
    )
    given_number = ["17"] if name == "task" else []
    rest = st.lists(st.one_of(named, st.sampled_from(WORDS).map(lambda word: [word])), max_size=3)
    return rest.map(lambda each: ["job", *given_number, *(word for words in each for word in words)])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_command_line_that_is_read_without_typer_means_the_same(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(INSPECTING)))
    arguments = data.draw(arguments_of(name))
    found: list[dict[str, Any]] = []
    plain = plain_command(recorder(name, found), arguments)
    if plain is not None:
        assert read(plain, found) == read_by_typer(name, arguments)


@pytest.mark.parametrize(
    "line",
    [
        "status job",
        "status job --json --evaluations=0 --run_dir runs",
        "status --namespace=team job",
        "tasks job --slowest 10 --worker=worker-1",
        "task job 17 --purpose evaluate --debug",
        "why job --percent 1.5",
        "replay job --until=100 --verify",
        "metrics job --port 9000",
        "trace job trace.json --since 5",
    ],
)
def test_usual_command_lines_are_read_without_typer(line: str) -> None:
    name, *arguments = line.split()
    found: list[dict[str, Any]] = []
    plain = plain_command(recorder(name, found), arguments)
    assert plain is not None
    assert read(plain, found) == read_by_typer(name, arguments)


@pytest.mark.parametrize(
    "line",
    [
        "status",
        "status job other",
        "task job",
        "task job x",
        "why job task 17",
        "tasks job --limit",
        "replay job --simulate --no-failures",
    ],
)
def test_what_is_wrong_or_unusual_is_left_to_typer(line: str) -> None:
    name, *arguments = line.split()
    assert plain_command(FUNCTIONS[name], arguments) is None


def test_an_interrupt_of_a_command_without_typer_has_the_same_exit_code() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        exit_codes.run_guarded(interrupted, [])
    assert ended.value.code == exit_codes.INTERRUPTED
