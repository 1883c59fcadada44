"""What a user should do with a job that did not succeed: resume it, or fix something and start a new job."""

from __future__ import annotations

from elasticdl.cli.jobs.handle import ReadableJob
from elasticdl.cli.jobs.run_directory import NOTHING_TO_RESUME
from elasticdl.master.core import State
from elasticdl.master.core.job.failure import NOT_FINITE_AT_START
from elasticdl.master.core.training.skipping import failed_for_good
from elasticdl.shared.errors import REBUILD
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.model.manifests import NOTHING_LEFT
from elasticdl.shared.names import Service
from elasticdl.views.reading import is_complete
from elasticdl.views.tasks import tasks_text

_UNTRAINED = {
    FailureKind.USER_CODE: "Fix the model file, then start a new job. Nothing was trained yet.",
    FailureKind.DATA: "Fix the data, then start a new job. Nothing was trained yet.",
    FailureKind.ENVIRONMENT: "Fix the cause, then start a new job. Nothing was trained yet.",
}


def resume_line(job: str) -> str:
    """The command that resumes a job."""
    return f"elasticdl resume {job}"


def next_step(job: str, state: State, *, has_snapshots: bool = False) -> str:
    """What to do next, a line for each way; names a resume only where it can help. Pure.

    A job resumes only with the model file and the data that it was planned with. After a change of either, a new job is
    needed.

    Args:
        has_snapshots: for a job without a log: whether there are snapshots to resume from.
    """
    if state.job_state is JobState.SUCCEEDED:
        return ""
    if state.closing.audit is not None and not state.closing.audit.exact:
        return "Start a new job. Resuming this one can't repair its model."
    kind = state.failure.kind if state.failure else None
    resume = f"{resume_line(job)} {REBUILD}" if _needs_rebuilding(state) else resume_line(job)
    if state.spec is None:
        return f"The event log is lost. To resume from the snapshots: {resume}" if has_snapshots else NOTHING_TO_RESUME
    if state.failure and NOTHING_LEFT in state.failure.message:
        return f"Start a new job. {state.failure.guilty} has no usable snapshot left."
    if state.failure and NOT_FINITE_AT_START in state.failure.message:
        return "Fix the cause and start a new job."
    if kind is FailureKind.NOT_FINITE:
        return "Fix the cause and start a new job. This job's snapshots already contain the diverged weights."
    if state.job.prediction and kind not in (FailureKind.USER_CODE, FailureKind.DATA):
        return f"To continue with the tasks that are not predicted yet: {resume}"
    if not _has_trained(state, kind):
        return _UNTRAINED[kind] if kind else f"Nothing was trained yet. To start the job again: {resume}"
    if (export := _export_step(job, state, kind)) is not None:
        return export
    match kind:
        case FailureKind.USER_CODE:
            fix = f"Fix the model file and start a new job. If the cause is elsewhere, fix it and resume: {resume}"
            return fix + _skip_step(resume, state)
        case FailureKind.DATA:
            fix = f"Fix the data and start a new job. If you can restore the data as it was, resume: {resume}"
            return fix + _skip_step(resume, state)
        case _:
            return f"To resume from the latest snapshots: {resume}"


def _skip_step(resume: str, state: State) -> str:
    """How to leave out the tasks that failed for good, where that is possible."""
    failed = failed_for_good(state)
    if not failed or state.job.has_ring or state.job.rounds is not None:
        return ""
    numbers = ",".join(map(str, failed))
    return f"\nTo continue without the records of {tasks_text(failed)}: {resume} --skip_tasks={numbers}"


def _export_step(job: str, state: State, kind: FailureKind | None) -> str | None:
    """What to do if only the export has failed; None: something else has."""
    if state.closing.audit is None or not state.job.output or state.closing.exported:
        return None
    lacked_space = state.job_state is JobState.STOPPED and state.stopped_by is Service.WORKER
    if kind is FailureKind.ENVIRONMENT or lacked_space:
        return f"The model is trained. To export it again, or to another folder: {resume_line(job)} --output=DIR"
    if kind is FailureKind.USER_CODE and state.closing.export_dispatch:
        return f"The model is trained. Fix the model file, then export it without training: elasticdl export {job}"
    return None


def find_next_step(job: ReadableJob, state: State) -> str:
    """``next_step``; if the log is lost, searches the storage for snapshots, as a resume does."""
    if state.spec is not None:
        return next_step(job.arguments, state)
    storage = job.condition().storage
    if not storage:
        return NOTHING_TO_RESUME
    from elasticdl.ps.snapshots.job_recovery import has_snapshots
    from elasticdl.shared.storage import open_store

    return next_step(job.arguments, state, has_snapshots=has_snapshots(open_store(storage), storage, job.job))


def _needs_rebuilding(state: State) -> bool:
    """Whether something on the bus can't be read that the job can't do without."""
    return not is_complete(state) or (state.failure is not None and REBUILD in state.failure.message)


def _has_trained(state: State, kind: FailureKind | None) -> bool:
    """Whether there is progress to resume from. Code or data that never completed a task would only fail again."""
    if state.training is not None and len(state.training.complete) > 0:
        return True
    if kind in (FailureKind.USER_CODE, FailureKind.DATA):
        return False
    return bool(state.resumes or state.snapshots) or any(pod.has_model for pod in state.pods_of(Service.PS))
