"""Why a job fails, and the message that its user reads."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.messages.events import FailureKind, TaskFailed

NOT_FINITE_HINT = (
    "Try a lower learning rate or gradients clipped by the optimizer (clipnorm=1.0), and look for missing, infinite or "
    "huge values in these records."
)
NOT_FINITE_AT_START = "since step 0, with the initial weights"
NOT_FINITE_AT_START_HINT = (
    "Look for missing, infinite or huge values in these records, log(0) or a division by zero in the loss, unscaled "
    "features."
)
VALIDATION_HINT = (
    "The training loss may still be finite: layers that behave differently in evaluation, such as BatchNormalization, "
    "may have diverged, or the validation data has missing, infinite or huge values."
)


@dataclass(slots=True, kw_only=True)
class Failure:
    """Why the job has to end.

    Attributes:
        guilty: the process whose log says more, or empty.
        kind: the cause, which tells whether a resume can help; ENVIRONMENT when the cause is unknown.
    """

    message: str
    guilty: str = ""
    kind: FailureKind = FailureKind.ENVIRONMENT


def failure_text(failed: TaskFailed, worker: str) -> str:
    """The message for a job that ends because of a failed task."""
    named = not failed.source or failed.source in failed.message
    records = "" if named else f" with records {failed.first_record} to {failed.last_record - 1} of {failed.source}"
    place = f" ({failed.task}{records}, batch {failed.batch}, on {worker})"
    if failed.kind is FailureKind.NOT_FINITE and failed.step == 0:
        return f"{failed.message} {NOT_FINITE_AT_START}{place}\n  {NOT_FINITE_AT_START_HINT}"
    if failed.kind is FailureKind.NOT_FINITE:
        return f"{failed.message} since step {failed.step}{place}\n  {NOT_FINITE_HINT}"
    return f"{failed.message}{place}" + (f"\n{failed.traceback}" if failed.traceback else "")
