"""What to do with a job that has ended without success: go on with it, or mend something and train anew. Pure."""

from __future__ import annotations

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.master.core import State
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.model.manifests import NOTHING_LEFT
from elasticdl.shared.names import Service

UNBEGUN = "Train anew: it ended before it had learned anything, or its event log and its snapshots are lost."
_UNLEARNED = {
    FailureKind.USER_CODE: "Mend the model file and train anew: nothing was learned yet.",
    FailureKind.DATA: "Mend the data and train anew: nothing was learned yet.",
    FailureKind.ENVIRONMENT: "Put that right and train anew: nothing was learned yet.",
}


def resume_line(run: RunDirectory) -> str:
    """The command that goes on with a job."""
    return f"elasticdl resume {run.arguments}"


def advice(run: RunDirectory, state: State, *, salvageable: bool = False) -> str:
    """What to do next, in one line; a resume is named only where it can help.

    A job goes on only with the model file and the data that it was planned with: what has to be changed there takes a
    new job.

    Args:
        run: the job's folder.
        state: the job at its end.
        salvageable: of a job without a log: whether there are snapshots to go on from.
    """
    if state.job_state is JobState.SUCCEEDED:
        return ""
    if state.closing.audit is not None and not state.closing.audit.exact:
        return "Train anew: no resume takes back what was absorbed."
    kind = state.failure.kind if state.failure else None
    resume = resume_line(run)
    if state.spec is None:
        return f"Its event log is lost; to go on from its snapshots: {resume}" if salvageable else UNBEGUN
    if state.failure and NOTHING_LEFT in state.failure.message:
        return f"Train anew: no snapshot of {state.failure.guilty} that the job could go on from is left."
    if kind is FailureKind.NOT_FINITE:
        return "Mend that and train anew: the snapshots of this job hold the model that has come to this."
    if not _has_learned(state, kind):
        if kind:
            return _UNLEARNED[kind]
        return f"Nothing was learned yet; start it again with: {resume}"
    match kind:
        case FailureKind.USER_CODE:
            return f"Mend the model file and train anew; if the cause is elsewhere, go on with: {resume}"
        case FailureKind.DATA:
            return f"Mend the data and train anew; if it can be put back as it was, go on with: {resume}"
        case _:
            return f"To go on from the last snapshots: {resume}"


def _has_learned(state: State, kind: FailureKind | None) -> bool:
    """Whether there is anything to go on with; code and data that never came through a task are no good as they are."""
    if state.training is not None and len(state.training.complete) > 0:
        return True
    if kind in (FailureKind.USER_CODE, FailureKind.DATA):
        return False
    return bool(state.resumes or state.snapshots) or any(pod.has_model for pod in state.pods_of(Service.PS))
