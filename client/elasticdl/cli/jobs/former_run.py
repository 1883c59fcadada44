"""A job that has ended, as far as it is known without its event log."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.cli.jobs.run_directory import JobRecord, LogEnd, RunDirectory
from elasticdl.shared.names import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerRun:
    """A job that has ended, as far as it is known without its event log.

    Attributes:
        epochs: number of epochs in total; 0: unknown.
    """

    job: JobId
    arguments: str
    storage: str
    log_end: LogEnd = field(default_factory=LogEnd)
    history: str = ""
    epochs: int = 0


def former_run(run: RunDirectory, record: JobRecord) -> FormerRun:
    """What a job's folder says about the job."""
    return FormerRun(
        job=run.job,
        arguments=run.arguments,
        storage=record.storage,
        log_end=run.read_log_end(),
        history=run.read_history(),
        epochs=record.epochs,
    )
