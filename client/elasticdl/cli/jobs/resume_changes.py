"""What ``elasticdl resume`` changes of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.names import JobId

if TYPE_CHECKING:  # Every command imports this module.
    from elasticdl.master.core import State


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeChanges:
    """What a resume changes; 0, empty and None: nothing.

    Attributes:
        skip_tasks: numbers of training tasks that failed for good and are not to be trained, as text: ``17,20-22``.
        rebuild_bus: whether the streams of the job are replaced by what its snapshots say.
    """

    ps: int = 0
    epochs: int = 0
    output: str = ""
    rebuild_bus: bool = False
    skip_tasks: str | None = None

    @property
    def skipped(self) -> tuple[tuple[int, int], ...]:
        """The tasks to skip, as ranges ``[start, end)``.

        Raises:
            UserError: the text names none.
        """
        return () if self.skip_tasks is None else tuple(RangeSet(map(_range, self.skip_tasks.split(","))).ranges())


def _range(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18}))?\s*", text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise UserError(
            f"--skip_tasks: {text.strip() or 'nothing'} is not the number of a task, nor a range of them",
            hint="Write numbers and ranges with commas between them: --skip_tasks=17,20-22.",
            usage=True,
        )
    return int(found[1]), int(found[2] or found[1]) + 1


def check_skip(changes: ResumeChanges, arguments: str, state: State) -> None:
    """Refuse to skip tasks that did not fail for good, or in a job whose batches depend on each other.

    Raises:
        UserError: with the tasks that can be skipped.
    """
    if changes.skip_tasks is None:
        return
    from elasticdl.master.core.training.skipping import failed_for_good

    job = state.spec
    if job is None:
        raise UserError("the event log is lost, so it is not known which tasks failed", usage=True)
    if job.has_ring or job.rounds is not None:
        raise UserError(
            f"job {job.job} trains synchronously, so its tasks can't be skipped: each update needs all of its batches",
            hint="Fix the data or the model, or start a new job with --use_async=true.",
            usage=True,
        )
    known = failed_for_good(state)
    skipped = state.training.skipped if state.training else RangeSet()
    for start, stop in changes.skipped:
        end = min(stop, max(start, state.plan.tasks) + 1)  # However far a range reaches, one wrong number is enough.
        others = (number for number in range(start, end) if number not in known and number not in skipped)
        if (other := next(others, None)) is not None:
            named = ", ".join(map(str, known)) or "none"
            raise UserError(
                f"task {other} of job {job.job} has not failed for good, so it can't be skipped",
                hint=f"Tasks that can be skipped: {named}. To see them: elasticdl tasks {arguments} --state=failed",
                usage=True,
            )


def check_changes(changes: ResumeChanges, job: JobId, arguments: str, kind: JobKind, *, has_finished: bool) -> None:
    """Refuse changes that a job does not take, and a job that has nothing left to do."""
    if not kind.trains and (changes.epochs or changes.output):
        raise UserError(
            f"job {job} trains no model, so it takes neither --num_epochs nor --output",
            hint=f"To continue it as it was planned: elasticdl resume {arguments}",
            usage=True,
        )
    if not kind.trains and changes.skip_tasks is not None:
        raise UserError(f"job {job} trains no model, so it takes no --skip_tasks", usage=True)
    if has_finished and not changes.epochs:
        more = (
            f"To train more epochs: elasticdl resume {arguments} --num_epochs=N, where N is their total number. "
            f"To export the model: elasticdl export {arguments}"
        )
        raise UserError(
            f"job {job} has finished successfully, so there is nothing to resume",
            hint=more if kind.trains else "",
        )
