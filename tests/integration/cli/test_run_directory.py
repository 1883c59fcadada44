"""The lock of a run directory, held by another process, and the folder in which a job was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.handle import JobNotFoundError
from elasticdl.cli.jobs.local_handle import LocalJobHandle
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import JobId


def test_a_lock_is_held_until_its_process_ends(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job-1"))
    run.create()
    code = (
        "import sys\nfrom pathlib import Path\nfrom elasticdl.cli.jobs.run_directory import RunDirectory\n"
        f"with RunDirectory(Path({str(tmp_path)!r}), 'job-1').lock():\n"
        "    print('held', flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert run.is_locked()
        with pytest.raises(UserError, match=rf"job job-1 is in use by process {holder.pid}"), run.lock():
            pass
        run.write(JobRecord(job=run.job, created_s=0.0, state="running", launcher_pid=holder.pid))
        with pytest.raises(UserError, match=rf"job job-1 is running \(process {holder.pid}\)"), run.lock():
            pass
        holder.kill()
    assert not run.is_locked()
    with run.lock():
        assert run.is_locked()


async def test_a_job_that_is_being_checked_has_no_log_yet(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job-1"))
    run.create()
    with run.lock():
        run.write(JobRecord(job=run.job, created_s=0.0, state="starting", launcher_pid=os.getpid()))
        with pytest.raises(UserError, match="job job-1 has no event log yet: its launcher still checks the data"):
            async with open_bus(run):
                pass


def test_a_dead_process_is_not_named_as_the_holder_of_a_lock(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job-1"))
    run.create()
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    with run.lock():
        (run.path / "lock").write_text(
            str(dead.pid)
        )  # What a killed launcher leaves, until the next one writes its id.
        with pytest.raises(UserError, match="job job-1 is in use") as refused, run.lock():
            pass
        assert str(dead.pid) not in str(refused.value)
    assert run.holder() == 0


def test_a_job_is_resumed_where_it_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, elsewhere = tmp_path / "started", tmp_path / "elsewhere"
    for folder in (started, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(elsewhere)
    record = JobRecord(job=JobId("job-000000"), created_s=0.0, state="stopped", working_directory=str(started))
    run_directory.enter(record)
    assert Path.cwd() == started
    started.rmdir()
    with pytest.raises(
        UserError, match=r"working directory .*started of job job-000000 can't be entered: No such file"
    ):
        run_directory.enter(record)


def test_a_job_that_was_deleted_while_it_was_watched_is_not_found(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job-1"))
    run.create()
    run.write(JobRecord(job=run.job, created_s=0.0, state="starting"))
    job = LocalJobHandle(run)
    assert not job.condition().is_running
    run.remove()
    with pytest.raises(JobNotFoundError, match="job job-1 was deleted"):
        job.condition()
