"""``elasticdl jobs``. A guard fails unit tests that start a process, so none of these commands starts a nats-server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.cli.commands.jobs import list_jobs
from elasticdl.cli.jobs.local_handle import LocalJobHandle
from elasticdl.cli.jobs.run_directory import NOTHING_TO_RESUME, JobRecord, RunDirectory
from elasticdl.shared.names import JobId


def interrupted(root: Path, name: str, *, log: bool) -> RunDirectory:
    run = RunDirectory(root, JobId(name))
    run.create()
    storage = (root / name / "storage").as_uri()
    record = JobRecord(
        job=run.job, created_s=1.0, state="training", model="/m.py:model", storage=storage, own_nats=True
    )
    run.write(record)
    if log:
        run.nats.mkdir(parents=True, exist_ok=True)
        (run.nats / "1.blk").write_text("x")
    return run


def test_an_interrupted_job_is_listed_with_its_next_step_and_its_log_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(tmp_path, "with-log-1", log=True)
    interrupted(tmp_path, "without-1", log=False)
    list_jobs(tmp_path)
    shown = " ".join(capsys.readouterr().out.split())
    assert "with-log-1 was interrupted: its launcher is not running. To resume: elasticdl resume with-log-1" in shown
    assert f"without-1 was interrupted: its launcher is not running. {NOTHING_TO_RESUME}" in shown


def test_a_failed_job_is_listed_with_the_reason_that_its_launcher_has_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = interrupted(tmp_path, "given-up-1", log=True)
    run.write(replace(run.read(), state="failed", message="nats-server keeps crashing; its log is /l\nmore"))
    list_jobs(tmp_path)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.endswith("given-up-1 has failed: nats-server keeps crashing; its log is /l")
    assert LocalJobHandle(run).condition().end == f"has failed: {run.read().message}"


def test_an_empty_folder_is_said_to_have_no_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list_jobs(tmp_path)
    assert capsys.readouterr().out.split() == ["No", "jobs", "in", str(tmp_path)]
