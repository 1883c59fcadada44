"""Why a job has to end, and what its user reads about it."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.messages.events import FailureKind, TaskFailed

NOT_FINITE_HINT = (
    "Try a lower learning rate or gradients clipped by the optimizer (clipnorm=1.0), and look for missing, infinite or "
    "huge values in these records."
)


@dataclass(slots=True, kw_only=True)
class Failure:
    """Why the job has to end.

    Attributes:
        message: what the user reads.
        guilty: the process whose log says more, or empty.
        kind: whose fault, so whether a resume can help; the environment's where nobody knows better.
    """

    message: str
    guilty: str = ""
    kind: FailureKind = FailureKind.ENVIRONMENT


def failure_text(failed: TaskFailed, worker: str) -> str:
    """What the user reads when a task's failure ends the job."""
    named = not failed.source or failed.source in failed.message
    records = "" if named else f"records {failed.first_record} to {failed.last_record - 1} of {failed.source}"
    place = f" ({failed.task}, batch {failed.batch}{', ' + records if records else ''}, on {worker})"
    if failed.kind is FailureKind.NOT_FINITE:
        return f"{failed.message} since step {failed.step}{place}\n  {NOT_FINITE_HINT}"
    return f"{failed.message}{place}" + (f"\n{failed.traceback}" if failed.traceback else "")
