"""An early end, on request or after a failure: workers stop first, then the ps take a last snapshot and stop.

A ring serves its model itself, so there the last snapshot comes before the workers stop.
"""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import SNAPSHOT_PAUSE, STOP
from elasticdl.shared.messages.commands import EnterState, JobState, SetTimer, StopPod, TakeSnapshot
from elasticdl.shared.names import PodName, Service

STOP_S_MAX = 30.0
"""Seconds that workers and ps get to stop in an orderly way; after that the job ends without the rest."""


def decide_stopping(state: State, now_s: float) -> Decisions:
    """The next step of a job that was asked to stop or has failed."""
    if state.is_final:
        return []
    if state.job_state is not JobState.STOPPING:
        reason = state.failure.message if state.failure else state.stop_reason
        if not reason:
            return []
        return [
            (EnterState(state=JobState.STOPPING, message=reason), reason),
            (SetTimer(timer=STOP, due_s=now_s + STOP_S_MAX), "the time limit for stopping"),
            *([] if state.job.has_ring else _stop(_alive(state, Service.WORKER), "stop")),
        ]
    if not state.job.has_ring and any(True for _ in _alive(state, Service.WORKER)) and not state.stopping.overdue:
        return []
    # A ps without a model has nothing to save, and would refuse.
    savable = [pod.name for pod in state.running_holders if pod.has_model]
    unasked = [ps for ps in savable if ps not in state.stopping.asked]
    if unasked and not state.stopping.overdue and SNAPSHOT_PAUSE not in state.timers:
        return order_snapshots(state, unasked, state.stopping.request, "stop", flush=False)
    waiting = set(savable) - state.stopping.saved
    if waiting and not state.stopping.overdue:
        return []
    if state.failure:
        ended = EnterState(state=JobState.FAILED, message=state.failure.message, guilty=state.failure.guilty)
    else:
        ended = EnterState(state=JobState.STOPPED, message=state.stop_reason)
    return [(ended, ended.message), *stop_all(state, "the job has ended")]


def order_snapshots(state: State, ps: list[PodName], request: int, reason: str, *, flush: bool) -> Decisions:
    """Order last snapshots under one number. A ps that is asked again and has the snapshot only reports it again.

    Args:
        request: number of the order; 0: a new one.
        flush: apply half-filled gradient accumulators first, because no training follows.
    """
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
                tasks=state.plan.tasks if flush and state.is_replanned else 0,
                damaged=damaged.get(name, ""),
                version=version,
            ),
            f"the final snapshot of {name} is damaged" if name in damaged else f"{reason} snapshots",
        )
        for name in ps
    ]


def stop_all(state: State, reason: str) -> Decisions:
    """Stop every pod that still runs."""
    return _stop([*_alive(state, Service.WORKER), *_alive(state, Service.PS)], reason)


def _stop(pods: list[Pod], reason: str) -> Decisions:
    return [(StopPod(pod=pod.name, reason=reason, instance=pod.instance), reason) for pod in pods]


def _alive(state: State, service: Service) -> list[Pod]:
    return [pod for pod in state.pods_of(service) if pod.phase is not PodPhase.EXITED and not pod.is_hosted]
