"""The command in a process of its own: its output, and its errors as exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.api.commands import run
from elasticdl.shared.errors import ElasticDLError, UserError


def test_output_is_returned_and_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--version").startswith("elasticdl ")
    assert capfd.readouterr().out == ""
    output = run("--version", shows=True)
    assert capfd.readouterr().out == output


def test_errors_have_the_messages_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--limit=0 is out of range"):
        run("tasks", "a", "--limit=0")
    with pytest.raises(ElasticDLError, match=r"^there is no job 'nope'"):
        run("report", "nope", f"--run_dir={tmp_path}")
