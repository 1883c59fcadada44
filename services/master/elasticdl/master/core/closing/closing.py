"""The end of a job: final snapshots, audit, final evaluation, export; or a stop that keeps everything."""

from __future__ import annotations

from elasticdl.master.core.closing.audit import audit
from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.evaluation import decide_epoch_merges, wants_final_evaluation
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.state import Closing, State
from elasticdl.master.core.timers import READ_PAUSE, SNAPSHOT_PAUSE, STOP
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.commands import (
    Dispatch,
    EnterState,
    JobState,
    ReadLedgers,
    SetTimer,
    StopPod,
    TakeSnapshot,
)
from elasticdl.shared.messages.events import LedgersRead, SnapshotDamaged
from elasticdl.shared.names import PodName, Purpose, Service

DAMAGED_MAX = 5
"""Final snapshots of one ps in a row that may be damaged before the job fails: its storage keeps nothing."""
STOP_S_MAX = 30.0
"""Seconds that workers and ps get to put things in order when the job stops; then it ends without."""


def reset_closing(state: State) -> None:
    """A ps died while the job was closing: what it said before no longer counts."""
    state.closing = Closing()


def note_ledgers(state: State, event: LedgersRead) -> None:
    """Fold the audit's evidence; with the last piece comes the verdict."""
    closing = state.closing
    if closing.manifests.get(event.ps) != event.manifest or state.training is None:
        return
    closing.ledgers[event.ps] = event.ledgers
    if len(closing.ledgers) < len(state.holders):
        return
    verdict = audit(state.plan, state.job.checksum, closing.ledgers)
    if verdict.problems:
        state.fail("The audit found that training was not exact:\n" + "\n".join(verdict.problems))
        closing.audit = verdict
    elif verdict.missing:
        missing = RangeSet(verdict.missing)
        state.repaired += len(missing)
        reset_closing(state)
        state.training.forget(missing)
        state.job_state = JobState.TRAINING
    else:
        closing.audit = verdict


def note_damaged_final(state: State, event: SnapshotDamaged) -> None:
    """Fold that a final snapshot can't be read: its ps is asked for another one under the same number."""
    closing = state.closing
    if closing.manifests.get(event.ps) != event.snapshot:
        return
    del closing.manifests[event.ps]
    closing.reading.discard(event.ps)
    closing.asked.discard(event.ps)
    damaged = closing.damaged.setdefault(event.ps, [])
    damaged.append(event.snapshot)
    if len(damaged) >= DAMAGED_MAX:
        state.fail(
            f"{len(damaged)} final snapshots of {event.ps} in a row could not be read back, the last one because "
            f"{event.object} {event.problem}: the storage does not keep what it is given.",
            guilty=event.ps,
        )


def decide_closing(state: State) -> Decisions:
    """Steps of a job that has absorbed everything."""
    training = state.training
    if training is None or not state.all_ps_running or state.move:
        return []
    if not training.is_complete:
        if state.job_state is JobState.CLOSING:
            return [(EnterState(state=JobState.TRAINING), "a restored ps lacks tasks")]
        return []
    if state.job_state is JobState.TRAINING:
        if state.evaluation is not None:
            return []
        return [(EnterState(state=JobState.CLOSING), "every ps is credited with every task")]
    if state.job_state is not JobState.CLOSING:
        return []
    return _next_step(state)


def _next_step(state: State) -> Decisions:
    closing = state.closing
    unasked = [pod.name for pod in state.running_holders if pod.name not in closing.asked]
    if unasked and SNAPSHOT_PAUSE not in state.timers:
        return _order_snapshots(state, unasked, closing.request, "final", flush=True)
    unread = [ps for ps in sorted(closing.manifests) if ps not in closing.reading]
    if unread and READ_PAUSE in state.timers:
        return []
    if unread:
        return [(ReadLedgers(ps=ps, manifest=closing.manifests[ps]), f"audit of {ps}") for ps in unread]
    if closing.audit is None or not closing.audit.exact:
        return []
    merges = decide_epoch_merges(state)
    if merges or any(not merge.done for merge in state.merges.values()) or wants_final_evaluation(state):
        return merges
    if state.job.output and not closing.export_dispatched:
        command = Dispatch(purpose=Purpose.EXPORT, dispatch=state.dispatches + 1, tasks=((0, 1),))
        return [(command, "the model is complete and audited")]
    if state.job.output and not closing.exported:
        return []
    return [(EnterState(state=JobState.SUCCEEDED), "the audit is exact"), *_stop_all(state, "the job is done")]


def decide_stopping(state: State, now_s: float) -> Decisions:
    """Steps of a job that was told to stop or has failed: workers first, then a last snapshot, then the ps."""
    if state.is_final:
        return []
    if state.job_state is not JobState.STOPPING:
        reason = state.failure.message if state.failure else state.stop_reason
        if not reason:
            return []
        return [
            (EnterState(state=JobState.STOPPING, message=reason), reason),
            (SetTimer(timer=STOP, due_s=now_s + STOP_S_MAX), "the longest time to put things in order"),
            *((StopPod(pod=pod.name, reason="stop"), "stop") for pod in _alive(state, Service.WORKER)),
        ]
    if any(True for _ in _alive(state, Service.WORKER)) and not state.stopping.overdue:
        return []
    # A ps without a model has nothing to save, and would refuse.
    savable = [pod.name for pod in state.running_holders if pod.has_model]
    unasked = [ps for ps in savable if ps not in state.stopping.asked]
    if unasked and not state.stopping.overdue and SNAPSHOT_PAUSE not in state.timers:
        return _order_snapshots(state, unasked, state.stopping.request, "stop", flush=False)
    waiting = set(savable) - state.stopping.saved
    if waiting and not state.stopping.overdue:
        return []
    if state.failure:
        ended = EnterState(state=JobState.FAILED, message=state.failure.message, guilty=state.failure.guilty)
    else:
        ended = EnterState(state=JobState.STOPPED, message=state.stop_reason)
    return [(ended, ended.message), *_stop_all(state, "the job has ended")]


def _order_snapshots(state: State, ps: list[PodName], request: int, reason: str, *, flush: bool) -> Decisions:
    """Ask under one number; asked again after a failure, under the same number, a ps that has it only says so."""
    number = request or state.requests + 1
    damaged = {name: snapshots[-1] for name, snapshots in state.closing.damaged.items()}
    version = state.placement.version
    return [
        (
            TakeSnapshot(
                ps=name,
                request=number,
                reason=reason,
                flush=flush,
                damaged=damaged.get(name, ""),
                version=version,
            ),
            f"the final snapshot of {name} is damaged" if name in damaged else f"{reason} snapshots",
        )
        for name in ps
    ]


def _alive(state: State, service: Service) -> list[Pod]:
    return [pod for pod in state.pods_of(service) if pod.phase is not PodPhase.EXITED]


def _stop_all(state: State, reason: str) -> Decisions:
    return [
        (StopPod(pod=pod.name, reason=reason), reason)
        for service in (Service.WORKER, Service.PS)
        for pod in _alive(state, service)
    ]
