"""The model that a new job starts from: the newest snapshots of another job."""

from __future__ import annotations

from pathlib import Path

from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.ended_job import read_ended_job
from elasticdl.shared.job.spec import InitialModel, JobSpec


def initial_model(job: str, root: Path) -> tuple[InitialModel, JobSpec]:
    """The newest version of a job's model, and that job.

    Args:
        job: its id or name.
        root: folder of the run directories.

    Raises:
        ElasticDLError: there is no such job, it is running, or it has no complete snapshot.
    """
    run = run_directory.find(root, job)
    with run.lock():
        ended = read_ended_job(run, run.read())
        return ended.version().as_initial_model(run.job), ended.spec
