"""The command in a process of its own: its output, and its errors as exceptions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from elasticdl.api.commands import run
from elasticdl.api.starting import train
from elasticdl.shared.errors import ElasticDLError, UserError


def test_output_is_returned_and_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--version").startswith("elasticdl ")
    assert capfd.readouterr().out == ""
    output = run("--version", shows=True)
    assert capfd.readouterr().out == output


def test_a_kernel_that_asks_for_colours_gets_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # As Jupyter does.
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    with pytest.raises(ElasticDLError, match=r"^there is no job 'nope'") as caught:
        run("report", "nope", f"--run_dir={tmp_path}")
    assert "\x1b" not in str(caught.value)


def test_errors_have_the_messages_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--limit=0 is out of range"):
        run("tasks", "a", "--limit=0")
    with pytest.raises(ElasticDLError, match=r"^there is no job 'nope'"):
        run("report", "nope", f"--run_dir={tmp_path}")
    with pytest.raises(UserError, match=r"^No such option: --nope( .*)?$"):
        run("tasks", "a", "--nope")
    with pytest.raises(UserError, match=r"^Invalid value for '--lines': .* unable to parse string as an integer$"):
        run("logs", "a", "--lines=many")


def test_secrets_are_read_from_standard_input(tmp_path: Path) -> None:
    flags = ("--model_def=none.py", "--training_data=none", f"--run_dir={tmp_path}")
    with pytest.raises(UserError, match="KERAS_BACKEND=jax can't be set"):
        run("train", *flags, secrets={"envs": "API_TOKEN=hunter2,KERAS_BACKEND=jax"})


def test_no_command_line_has_a_value_that_may_have_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\nprintf net-1a2b3c > "$ELASTICDL_JOB_FILE"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    secrets: dict[str, Any] = {"envs": {"API_TOKEN": "hunter2"}, "nats_url": "nats://me:hunter2@host"}
    assert train("net.py", "data", wait=False, **secrets).name == "net-1a2b3c"
    shown = capfd.readouterr().out
    assert "train --model_def=net.py" in shown and "hunter2" not in shown
