"""Spare workers: processes that have built the model, and take the places of workers that die. Pure.

In a job with spare workers every worker builds the model and waits until the master promotes it. A waiting process is a
spare if its name is not among the wanted ones. A spare keeps its name when it is promoted. It is wanted from then on in
place of the name of the other worker, which becomes that of a spare.
"""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import RETRY_S, restart_of, start_of
from elasticdl.shared.messages.commands import JobState, PromoteWorker
from elasticdl.shared.messages.events import Envelope, ModelBuilt
from elasticdl.shared.names import PodName, Service, pod_number

_VACANT = (PodPhase.ORDERED, PodPhase.STARTING, PodPhase.EXITED)
"""Phases in which a worker that was not promoted can't take part before a spare could."""


def decide_promotions(state: State) -> Decisions:
    """Promote the wanted workers that wait, and spares in place of wanted workers that have no model yet."""
    spares = [name for name in state.spares if _waits(state, name)]
    decisions: Decisions = []
    for name in state.wanted_workers if state.job.spare_workers else ():
        pod = state.pods.get(name)
        if _waits(state, name):
            decisions.append((_promote(state.pods[name], name), f"{name} has built the model"))
        elif spares and pod and pod.phase in _VACANT and not pod.is_promoted:
            spare = spares.pop(0)
            decisions.append((_promote(state.pods[spare], name), f"{spare} takes the place of {name}"))
    return decisions


def may_start_spares(state: State) -> bool:
    """Whether spares are started now: their imports must not delay the workers that the job waits for."""
    return state.job_state is JobState.TRAINING and len(state.running(Service.WORKER)) >= state.workers


def on_model_built(state: State, envelope: Envelope, _event: ModelBuilt) -> None:
    """Apply that a worker waits to be promoted."""
    pod = state.pods[envelope.name]
    if pod.is_promoted:
        return
    pod.incarnation = envelope.incarnation
    if pod.phase is PodPhase.STARTING:
        pod.phase = PodPhase.WAITING
    state.timers.pop(start_of(pod.name), None)


def apply_promotion(state: State, command: PromoteWorker, now_s: float) -> None:
    """Apply that a worker was ordered to take part; its name is wanted from now on."""
    if command.replaces != command.worker:
        wanted = {*state.wanted_workers, command.worker} - {command.replaces}
        state.want_workers({pod_number(name) for name in wanted})
        state.pods[command.worker].refusals = 0  # It has waited until it was needed.
    pod = state.pods[command.worker]
    pod.is_promoted, pod.phase = True, PodPhase.STARTING
    state.timers[start_of(pod.name)] = now_s + state.job.limits.start_s


def apply_failed_promotion(state: State, command: PromoteWorker, time_s: float) -> None:
    """Apply that the order was not obeyed. The name stays wanted: the same process is ordered again, if it is there."""
    pod = state.pods.get(command.worker)
    if pod is None or pod.incarnation != command.incarnation or pod.phase not in (PodPhase.STARTING, PodPhase.STOPPING):
        return
    pod.is_promoted = False
    if pod.phase is PodPhase.STARTING:
        pod.phase = PodPhase.WAITING
        state.timers.pop(start_of(pod.name), None)
        state.timers[restart_of(pod.name)] = time_s + RETRY_S


def _waits(state: State, name: PodName) -> bool:
    pod = state.pods.get(name)
    is_waiting = pod is not None and pod.phase is PodPhase.WAITING and not pod.is_unresponsive
    return is_waiting and restart_of(name) not in state.timers


def _promote(pod: Pod, replaces: PodName) -> PromoteWorker:
    return PromoteWorker(worker=pod.name, incarnation=pod.incarnation, replaces=replaces)
