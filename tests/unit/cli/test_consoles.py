"""What is printed when the output is not a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.cli.commands.jobs import list_jobs
from elasticdl.cli.display.consoles import JobConsole, print_error
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.shared.names import JobId


def test_a_list_of_jobs_is_not_wrapped_in_a_pipe_and_shows_damaged_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = "/data/" + "long/" * 40 + "train"
    for name in ("job-1", "job-2"):
        run = RunDirectory(tmp_path, JobId(name))
        run.create()
        run.write(JobRecord(job=run.job, created_s=1.0, state="succeeded", model="m.py:f", training_data=data))
    (tmp_path / "job-2" / "job.json").write_text("")
    list_jobs(tmp_path)
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if "job-1" in line]
    assert data in line
    assert "damaged" in next(line for line in printed.splitlines() if "job-2" in line)
    assert "job.json is damaged" in printed and "start a new job and delete this folder" in printed


@pytest.mark.parametrize(("no_color", "colors"), [("", True), ("1", False)])
def test_no_color_is_honoured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_color: str, colors: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    print_error("it failed")
    printed = capsys.readouterr().err
    assert ("[1;31m" in printed) == colors
    assert "it failed" in printed


def test_a_terminal_wraps_messages_between_words_and_a_pipe_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"{'word ' * 10}Logs: /data/{'long/' * 10}train"
    for name, value in (("COLUMNS", "40"), ("FORCE_COLOR", "1"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    JobConsole().print_line(message)
    *prose, path = capsys.readouterr().out.splitlines()
    assert len(prose) == 2 and path == f"/data/{'long/' * 10}train"
    monkeypatch.delenv("FORCE_COLOR")
    JobConsole().print_line(message)
    assert capsys.readouterr().out == f"{message}\n"
