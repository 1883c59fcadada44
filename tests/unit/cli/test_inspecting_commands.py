"""The applications of single commands are those of the whole command line."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from elasticdl.cli import main
from elasticdl.cli.__main__ import INSPECTING
from elasticdl.cli.inspecting_commands import application_of


@pytest.mark.parametrize("name", sorted(INSPECTING))
def test_a_command_has_the_same_help_by_itself(name: str) -> None:
    alone, whole = (CliRunner().invoke(app, [name, "--help"]) for app in (application_of(name), main.app))
    assert alone.exit_code == 0
    assert alone.output == whole.output
