"""Pod restarts with backoff: which pods to start and stop, and when a pod that keeps failing ends the job."""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.job.policy import policy_of
from elasticdl.master.core.pods.crashes import on_worker_crashed
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import restart_of
from elasticdl.shared.messages.commands import JobState, StartPod, StopPod
from elasticdl.shared.messages.events import ExitCause, PodExited
from elasticdl.shared.names import PodName, Service

RESTART_DELAY_S = 0.25
"""Seconds before the first restart after a failure; doubled with every further failure in a row."""
RESTART_DELAY_S_MAX = 10.0
"""Longest delay before a restart, seconds."""


def decide_pods(state: State) -> Decisions:
    """Start every wanted pod that is not running; one that failed by its own fault waits for its restart timer."""
    wanted = policy_of(state.job.kind).pods(state)
    unwanted = sorted(state.pods.keys() - wanted.keys())
    decisions: Decisions = [
        (
            StopPod(pod=name, reason="scaled down", instance=state.pods[name].instance),
            f"scaled to {state.workers} workers and {state.ps} ps",
        )
        for name in unwanted
        if state.pods[name].phase not in (PodPhase.EXITED, PodPhase.STOPPING)
    ]
    for name, service in wanted.items():
        known = state.pods.get(name)
        if known is None:
            decisions.append((StartPod(pod=name, service=service), "start the job's pods"))
        elif known.is_unresponsive:
            kill = StopPod(pod=name, reason="unresponsive", kill=True, instance=known.instance)
            decisions.append((kill, f"{name} is unresponsive"))
        elif known.phase is PodPhase.EXITED and restart_of(name) not in state.timers:
            decisions.append((StartPod(pod=name, service=service), f"restart {name}"))
    return decisions


def restart_delay_s(faults: int) -> float:
    """Seconds before a pod is restarted that failed ``faults`` times in a row."""
    return min(RESTART_DELAY_S * 2.0**faults, RESTART_DELAY_S_MAX)


def on_unordered_exit(state: State, pod: Pod, event: PodExited, time_s: float) -> None:
    """Apply an exit that the master did not order: count the failure, and schedule the restart or end the job."""
    if event.cause is ExitCause.REFUSED and others_continue(state, pod.name):
        pod.refusals += 1
    elif event.cause is ExitCause.REFUSED:
        state.fail(f"{pod.name} can't continue.\n{event.log_tail}".rstrip(), guilty=pod.name)
    elif event.cause is ExitCause.OWN_FAULT or _exited_unexpectedly(pod, event):
        pod.faults += 1
        on_worker_crashed(state, event)
        if pod.faults > state.job.limits.relaunches_max:
            text = f"{pod.name} failed {pod.faults} times in a row (exit code {event.exit_code}).\n{event.log_tail}"
            state.fail(text.rstrip(), guilty=pod.name)
    if event.cause is not ExitCause.OUTSIDE and not state.failure:
        state.timers[restart_of(pod.name)] = time_s + restart_delay_s(pod.faults + pod.refusals)


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
