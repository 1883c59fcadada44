"""A job that has ended, as far as it is known without its event log."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.cli.jobs.run_directory import JobRecord, LogEnd, RunDirectory
from elasticdl.shared.names import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRun:
    """A job that has ended, as far as it is known without its event log.

    Attributes:
        log_place: where its event log is, for people.
        epochs: number of epochs in total; 0: unknown.
    """

    job: JobId
    arguments: str
    storage: str
    log_place: str = ""
    log_end: LogEnd = field(default_factory=LogEnd)
    history: str = ""
    epochs: int = 0


def streams_of(job: JobId) -> str:
    """Where the event log of a job is that has no NATS server of its own, for people."""
    return f"the streams EDL-{job}-* of the NATS server"


def former_run(run: RunDirectory, record: JobRecord) -> FormerRun:
    """What a job's folder says about the job."""
    log = f"the folder {run.nats}" if record.own_nats else streams_of(run.job)
    return FormerRun(
        job=run.job,
        arguments=run.arguments,
        storage=record.storage,
        log_place=log,
        log_end=run.read_log_end(),
        history=run.read_history(),
        epochs=record.epochs,
    )
