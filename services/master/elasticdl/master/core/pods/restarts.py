"""Pod restarts with backoff: which pods to start and stop, and when a pod that keeps failing ends the job."""

from __future__ import annotations

from enum import Enum

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.moves.decide import wanted_ps
from elasticdl.master.core.pods.crashes import explanation, on_worker_crashed
from elasticdl.master.core.pods.spares import decide_promotions, may_start_spares
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import restart_of
from elasticdl.shared.messages.commands import JobState, StartPod, StopPod
from elasticdl.shared.messages.events import ExitCause, PodExited
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.pods.causes import describe_exit
from elasticdl.shared.process.exit_codes import EXIT_NO_MEMORY
from elasticdl.shared.process.retries import Backoff

BACKOFF = Backoff(first_s=0.25, max_s=10.0)
"""Pauses before restarts after failures in a row."""


class Restart(Enum):
    """How a pod is restarted after an exit that the master did not order."""

    AT_ONCE = "at once"
    """Without limit, and without being counted."""
    DELAYED = "delayed"
    COUNTED = "counted"
    """With growing delays, until the pod has failed too often in a row."""
    WHILE_OTHERS_CONTINUE = "while others continue"
    """With growing delays while other workers train; otherwise the job fails."""


RESTARTS = {
    ExitCause.PREEMPTED: Restart.AT_ONCE,
    ExitCause.NODE_LOST: Restart.AT_ONCE,
    ExitCause.STOPPED: Restart.AT_ONCE,
    ExitCause.DISCONNECTED: Restart.AT_ONCE,
    ExitCause.FINISHED: Restart.DELAYED,
    ExitCause.OWN_FAULT: Restart.COUNTED,
    ExitCause.OUT_OF_MEMORY: Restart.COUNTED,
    ExitCause.HUNG: Restart.COUNTED,
    ExitCause.REFUSED: Restart.WHILE_OTHERS_CONTINUE,
}


def decide_pods(state: State) -> Decisions:
    """Start every wanted pod that is not running; one that failed by its own fault waits for its restart timer."""
    promotions = decide_promotions(state)
    if promotions:
        return promotions  # They change which workers are wanted.
    # The ps first: workers need them.
    wanted = dict.fromkeys(wanted_ps(state), Service.PS)
    wanted |= dict.fromkeys(state.wanted_workers, Service.WORKER)
    spares = [name for name in state.spares if not (name in state.pods and state.pods[name].is_promoted)]
    unwanted = sorted(state.pods.keys() - wanted.keys() - set(spares))
    decisions: Decisions = [
        (
            StopPod(pod=name, reason="scaled down", instance=state.pods[name].instance),
            f"scaled to {state.workers} workers and {state.ps} ps",
        )
        for name in unwanted
        if not state.pods[name].is_hosted
        and state.pods[name].phase not in (PodPhase.EXITED, PodPhase.STOPPING)
        and restart_of(name) not in state.timers
    ]
    if not may_start_spares(state):
        spares = [name for name in spares if name in state.pods and state.pods[name].phase is not PodPhase.EXITED]
    for name, service in (wanted | dict.fromkeys(spares, Service.WORKER)).items():
        known, is_spare = state.pods.get(name), name not in wanted
        if known is None:
            reason = f"start {name}, a spare worker" if is_spare else "start the job's pods"
            decisions.append((StartPod(pod=name, service=service, is_spare=is_spare), reason))
        elif known.is_unresponsive:
            kill = StopPod(pod=name, reason="unresponsive", kill=True, instance=known.instance)
            decisions.append((kill, f"{name} is unresponsive"))
        elif is_spare and known.refusals > state.job.limits.relaunches_max:
            pass  # The next one would end in the same way.
        elif known.phase is PodPhase.EXITED and restart_of(name) not in state.timers:
            decisions.append((StartPod(pod=name, service=service, is_spare=is_spare), f"restart {name}"))
    return decisions


def on_unordered_exit(state: State, pod: Pod, event: PodExited, time_s: float) -> None:
    """Apply an exit that the master did not order: count the failure, and schedule the restart or end the job.

    A pod that ran out of memory is not to blame as long as the next one gets more.
    """
    rule = Restart.DELAYED if event.next_memory_limit_bytes else RESTARTS[event.cause]
    if rule is Restart.COUNTED and event.exit_code == EXIT_NO_MEMORY and not pod.was_ready:
        rule = Restart.WHILE_OTHERS_CONTINUE  # Its start needs more than it may have, and would again.
    if rule is Restart.WHILE_OTHERS_CONTINUE and others_continue(state, pod.name):
        pod.refusals += 1
    elif state.is_spare(pod):  # The job continues without spares.
        is_fault = rule in (Restart.COUNTED, Restart.WHILE_OTHERS_CONTINUE) or _exited_unexpectedly(pod, event)
        pod.refusals += is_fault
    elif rule is Restart.WHILE_OTHERS_CONTINUE:
        ended = describe_exit(event.exit_code, event.cause)
        unexplained = f"It ended with {ended}, and its log has no error."
        state.fail(f"{pod.name} can't continue.\n{explanation(event) or unexplained}", guilty=pod.name)
    elif rule is Restart.COUNTED or _exited_unexpectedly(pod, event):
        pod.faults += 1
        on_worker_crashed(state, event)
        if pod.faults > state.job.limits.relaunches_max:
            ended = describe_exit(event.exit_code, event.cause)
            text = f"{pod.name} failed {pod.faults} times in a row ({ended}).\n{explanation(event)}"
            state.fail(text.rstrip(), guilty=pod.name)
    if rule is not Restart.AT_ONCE and not state.failure:
        state.timers[restart_of(pod.name)] = time_s + BACKOFF.pause_s(1 + pod.faults + pod.refusals)


def on_start_timed_out(state: State, pod: Pod, event: PodExited) -> None:
    """Apply the end of a worker that did not get ready in time: a fault, since its successor will do the same."""
    if state.is_spare(pod):
        pod.refusals += 1
        return
    pod.faults += 1
    if pod.faults > state.job.limits.relaunches_max:
        text = f"{pod.name} did not get ready within {state.job.limits.start_s:g} s, {pod.faults} times in a row."
        state.fail(f"{text}\n{explanation(event)}".rstrip(), guilty=pod.name)


def others_continue(state: State, name: PodName) -> bool:
    """Whether training continues without this worker, so that what it refuses is only its own environment.

    The worker is restarted all the same, with growing delays: its disk or its network may recover.
    """
    others = [pod for pod in state.running(Service.WORKER) if pod.name != name and not pod.is_unresponsive]
    return state.job_state is JobState.TRAINING and state.pods[name].service is Service.WORKER and bool(others)


def _exited_unexpectedly(pod: Pod, event: PodExited) -> bool:
    """Whether a worker exited with code 0 and no WorkerStopped: the model's code or a library ended the process."""
    announced = pod.incarnation and pod.stopped_incarnation == pod.incarnation
    return event.cause is ExitCause.FINISHED and pod.service is Service.WORKER and not announced
