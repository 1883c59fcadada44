"""What ``elasticdl resume`` changes of a job."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.names import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeChanges:
    """What a resume changes; 0 and empty: nothing.

    Attributes:
        rebuild_bus: whether the streams of the job are replaced by what its snapshots say.
    """

    ps: int = 0
    epochs: int = 0
    output: str = ""
    rebuild_bus: bool = False


def check_changes(changes: ResumeChanges, job: JobId, arguments: str, kind: JobKind, *, has_finished: bool) -> None:
    """Refuse changes that a job does not take, and a job that has nothing left to do."""
    if not kind.trains and (changes.epochs or changes.output):
        raise UserError(
            f"job {job} trains no model, so it takes neither --num_epochs nor --output",
            hint=f"To continue it as it was planned: elasticdl resume {arguments}",
            usage=True,
        )
    if has_finished and not changes.epochs:
        more = (
            f"To train more epochs: elasticdl resume {arguments} --num_epochs=N, where N is their total number. "
            f"To export the model: elasticdl export {arguments}"
        )
        raise UserError(
            f"job {job} has finished successfully, so there is nothing to resume",
            hint=more if kind.trains else "",
        )
