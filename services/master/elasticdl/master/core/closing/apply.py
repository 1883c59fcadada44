"""How snapshots and ledgers change the state of a job that is closing or stopping."""

from __future__ import annotations

from elasticdl.master.core.closing.audit import audit
from elasticdl.master.core.closing.state import Closing
from elasticdl.master.core.evaluation.epochs import adopt_evaluation
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import READ_PAUSE, RETRY_S
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.commands import JobState, ReadLedgers
from elasticdl.shared.messages.events import Envelope, LedgersRead, SnapshotDamaged, SnapshotTaken
from elasticdl.shared.names import SERVED_REPLICA, PodName

DAMAGED_MAX = 5
"""Damaged final snapshots of one ps in a row that end the job: its storage is not reliable."""


def reset_closing(state: State) -> None:
    """Forget the final snapshots after a ps has ended: they are taken again."""
    state.closing = Closing()


def on_final_snapshot(state: State, ps: PodName, event: SnapshotTaken) -> None:
    """Apply a snapshot of the present instance of a ps, if closing or stopping waits for it."""
    damaged = state.closing.damaged.get(ps, ())
    if event.request and event.request == state.closing.request and event.manifest not in damaged:
        state.closing.manifests[ps] = event.manifest
    if event.request and event.request == state.stopping.request:
        state.stopping.saved.add(ps)


def on_final_snapshot_damaged(state: State, event: SnapshotDamaged) -> None:
    """Apply that a final snapshot can't be read: its ps is asked for another one under the same number."""
    closing = state.closing
    if closing.manifests.get(event.ps) != event.snapshot:
        return
    if state.is_final:  # No ps is asked any more. A running one has saved the same state again.
        closing.manifests[event.ps] = event.instead or event.snapshot
        return
    del closing.manifests[event.ps]
    closing.reading.discard(event.ps)
    closing.asked.discard(event.ps)
    damaged = closing.damaged.setdefault(event.ps, [])
    damaged.append(event.snapshot)
    if len(damaged) >= DAMAGED_MAX:
        state.fail(
            f"{len(damaged)} final snapshots of {event.ps} in a row could not be read back. In the last one, "
            f"{event.object} {event.problem}. The storage does not return what was written to it.",
            guilty=event.ps,
        )


def on_ledgers_read(state: State, _envelope: Envelope, event: LedgersRead) -> None:
    """Apply ledgers that were read for the audit; the last ones complete it.

    Tasks that the audit finds missing are dispatched again: the job trains once more.
    """
    closing = state.closing
    if closing.manifests.get(event.ps) != event.manifest or state.training is None:
        return
    closing.ledgers[event.ps] = event.ledgers
    if len(closing.ledgers) < len(state.holders):
        return
    apart = SERVED_REPLICA if state.job.has_tables_beside_ring else None
    result = audit(state.plan, state.job.checksum, closing.ledgers, state.training.skipped, apart=apart)
    if result.problems:
        state.fail("The audit found that training was not exact:\n" + "\n".join(result.problems))
        closing.audit = result
    elif result.missing:
        missing = RangeSet(result.missing)
        state.repaired += len(missing)
        reset_closing(state)
        state.training.revoke(missing)
        state.job_state = JobState.TRAINING
    else:
        closing.audit = result
        adopt_evaluation(state, result.batches)


def apply_failed_read_ledgers(state: State, command: ReadLedgers, time_s: float) -> None:
    """Apply that the storage could not be read: it is tried again."""
    state.closing.reading.discard(command.ps)
    state.timers[READ_PAUSE] = time_s + RETRY_S
