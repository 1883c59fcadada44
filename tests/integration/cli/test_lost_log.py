"""What the command line says of a job whose event log is lost; it starts a nats-server to find out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.unit.ps.job_with_snapshots import STORAGE, job
from tests.unit.ps.jobs import Job

from elasticdl.cli.commands.inspect import status
from elasticdl.cli.commands.jobs import list_jobs
from elasticdl.cli.commands.resume import resume
from elasticdl.cli.jobs.local_handle import LocalJobHandle
from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import join, open_store, to_uri

__all__ = ["job"]


@pytest.mark.parametrize("learned", [True, False])
def test_jobs_status_and_resume_say_the_same_of_a_job_whose_log_is_lost(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], learned: bool
) -> None:
    run = RunDirectory(tmp_path, job.spec.job)
    run.create()
    here = os.getcwd()
    record = JobRecord(
        job=run.job, created_s=1.0, state="training", storage=to_uri(run.storage), working_directory=here
    )
    run.write(record)
    if learned:
        for info in job.store.list(STORAGE):
            place = join(to_uri(run.storage), info.uri.removeprefix(STORAGE).lstrip("/"))
            open_store(place).write(place, job.store.read(info.uri))
    advice = f"elasticdl resume {run.arguments}" if learned else "There is nothing to resume: the job trained nothing"
    list_jobs(tmp_path)
    assert advice in capsys.readouterr().out
    shutil.rmtree(run.nats)
    status(LocalJobHandle(run), as_json=False, evaluations=5)
    told = capsys.readouterr().out
    assert advice in told and "interrupted" in told
    if not learned:
        with pytest.raises(UserError, match="no event log, and no snapshot") as refused:
            resume(run.job, tmp_path, ResumeChanges())
        assert advice in refused.value.hint
