"""How events and commands change the state of pods."""

from __future__ import annotations

from elasticdl.master.core import timers
from elasticdl.master.core.closing.apply import reset_closing
from elasticdl.master.core.evaluation.apply import abandon_evaluation
from elasticdl.master.core.moves.apply import apply_ps_ledgers, interrupt_move
from elasticdl.master.core.pods.crashes import on_worker_silent
from elasticdl.master.core.pods.restarts import on_start_timed_out, on_unordered_exit, others_continue
from elasticdl.master.core.pods.spares import apply_failed_promotion, apply_promotion
from elasticdl.master.core.pods.state import Pod, PodPhase, SlowBatch
from elasticdl.master.core.rings.apply import on_worker_process_ended
from elasticdl.master.core.state import State
from elasticdl.master.core.training.apply import drop_attempts
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import PromoteWorker, StartPod, StopPod
from elasticdl.shared.messages.events import Envelope, FailureKind
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.names import NO_INSTANCE, NOBODY, PodName, Service

# --- reported by the pod supervisor -----------------------------------------------------------------------------


def on_pod_pending(state: State, envelope: Envelope, event: events.PodPending) -> None:
    """Apply that a pod that was ordered can't start yet."""
    pod = state.pods.get(event.pod)
    if pod is None or pod.phase is not PodPhase.ORDERED:
        return
    pod.pending, pod.pending_limit_s = event.reason, event.limit_s
    if event.limit_s:
        state.timers.setdefault(timers.pending_of(pod.name), envelope.time_s + event.limit_s)
    else:
        state.timers.pop(timers.pending_of(pod.name), None)


def on_pending_timeout(state: State, name: PodName, time_s: float) -> None:
    """Apply that a pod could not start in time: the job fails, unless it trains without that worker."""
    pod = state.pods.get(name)
    if pod is None or pod.phase is not PodPhase.ORDERED or not pod.has_no_place:
        return
    if others_continue(state, name) or state.is_spare(pod):
        state.timers[timers.pending_of(name)] = time_s + pod.pending_limit_s
        return
    state.fail(f"{name} could not start within {pod.pending_limit_s:g} s: {pod.pending}", guilty=name)


def on_pod_started(state: State, envelope: Envelope, event: events.PodStarted) -> None:
    """Apply the start of a process. The start of the present instance, or of one that has ended, is a repetition."""
    pod = state.pods.get(event.pod)
    if pod is None or pod.service is not event.service or event.instance in (pod.instance, pod.former_instance):
        return
    drop_attempts(state, pod.incarnation)
    on_worker_process_ended(state, pod.name, pod.instance)
    state.timers.pop(timers.pending_of(pod.name), None)
    pod.pending = ""
    pod.instance = event.instance
    pod.starts += 1
    if pod.phase is not PodPhase.STOPPING:
        pod.phase = PodPhase.STARTING
        state.timers[timers.start_of(pod.name)] = envelope.time_s + state.job.limits.start_s
    pod.incarnation = NOBODY
    pod.is_unresponsive = pod.was_unresponsive = pod.is_promoted = pod.was_ready = False
    pod.slow = None


def on_pod_exited(state: State, envelope: Envelope, event: events.PodExited) -> None:
    """Apply the end of a process."""
    pod = state.pods.get(event.pod)
    if pod is None or pod.instance != event.instance:
        return
    on_worker_process_ended(state, pod.name, pod.instance)
    pod.instance, pod.former_instance = NO_INSTANCE, pod.instance
    pod.slow = None
    state.timers.pop(timers.start_of(pod.name), None)
    ordered = pod.phase is PodPhase.STOPPING or state.is_final
    drop_attempts(state, pod.incarnation)
    pod.phase = PodPhase.EXITED
    if pod.service is Service.PS and state.training:
        interrupt_move(state, pod.name)
        state.training.on_ps_exited(pod.name)
        if not state.is_final:  # The results of a finished job stay.
            abandon_evaluation(state)
            reset_closing(state)
    if not ordered:
        on_unordered_exit(state, pod, event, envelope.time_s)
    elif pod.was_unresponsive and not state.is_final:
        on_worker_silent(state, event)
        if pod.service is Service.WORKER and not pod.was_ready:
            on_start_timed_out(state, pod, event)
    pod.is_promoted = False


def on_heartbeats_missed(state: State, _envelope: Envelope, event: events.HeartbeatsMissed) -> None:
    """Apply that a running process sent no heartbeat in time."""
    pod = state.pods.get(event.pod)
    if pod and (event.pod, event.incarnation) in state.watched:
        pod.is_unresponsive = True
        drop_attempts(state, event.incarnation)


def on_start_timeout(state: State, name: PodName) -> None:
    """Apply that a process did not get ready in time."""
    pod = state.pods.get(name)
    if pod and pod.phase is PodPhase.STARTING:
        pod.is_unresponsive = True


# --- reported by workers ----------------------------------------------------------------------------------------


def on_worker_started(state: State, envelope: Envelope, event: events.WorkerStarted) -> None:
    """Apply that a worker is ready."""
    pod = state.pods[envelope.name]
    pod.incarnation = envelope.incarnation
    pod.is_promoted = True  # Even if the answer to the order was lost.
    pod.notes = event.notes
    _set_running(state, pod)


def on_worker_stopped(state: State, envelope: Envelope, _event: events.WorkerStopped) -> None:
    """Apply that a worker has stopped in an orderly way."""
    drop_attempts(state, envelope.incarnation)
    state.pods[envelope.name].stopped_incarnation = envelope.incarnation
    state.ring.ready.pop(envelope.name, None)


def on_worker_failed(state: State, envelope: Envelope, event: events.WorkerFailed) -> None:
    """Apply that a worker can't work: the job fails, unless only the environment of this worker is the cause."""
    if event.kind is FailureKind.ENVIRONMENT and others_continue(state, envelope.name):
        return
    if state.is_spare(state.pods[envelope.name]):
        return
    text = event.message + (f"\n{event.traceback}" if event.traceback else "")
    state.fail(text, guilty=envelope.name, kind=event.kind)


def on_batch_slow(state: State, envelope: Envelope, event: BatchSlow) -> None:
    """Apply that a worker has made no progress on a batch for long, or that this batch has ended."""
    pod = state.pods[envelope.name]
    if event.seconds:
        since_s = envelope.time_s - event.seconds
        pod.slow = SlowBatch(task=event.task, batch=event.batch, work=event.work, since_s=since_s)
    elif pod.slow and (pod.slow.task, pod.slow.batch) == (event.task, event.batch):
        pod.slow = None


# --- reported by parameter servers ------------------------------------------------------------------------------


def on_ps_started(state: State, envelope: Envelope, event: events.PsStarted) -> None:
    """Apply that a ps is ready, with the ledgers that it restored."""
    pod = state.pods[envelope.name]
    if state.training is None or event.claim < pod.claim:
        return
    pod.claim = event.claim
    is_another = pod.incarnation not in ("", envelope.incarnation)
    if is_another and pod.phase is PodPhase.RUNNING and not state.is_final:  # The results of a finished job stay.
        interrupt_move(state, pod.name)
        abandon_evaluation(state)
        reset_closing(state)
    pod.incarnation = envelope.incarnation
    pod.address = event.address
    pod.is_unresponsive = pod.is_unresponsive and not pod.is_hosted
    if event.ledgers:
        pod.model_incarnation = pod.incarnation
    _set_running(state, pod)
    apply_ps_ledgers(state, envelope, event)


def on_model_initialised(state: State, envelope: Envelope, _event: events.ModelInitialised) -> None:
    """Apply that a ps holds its part of the model."""
    pod = state.pods[envelope.name]
    if pod.incarnation == envelope.incarnation:
        pod.faults = 0
        pod.model_incarnation = envelope.incarnation


def _set_running(state: State, pod: Pod) -> None:
    state.timers.pop(timers.start_of(pod.name), None)
    pod.was_ready = True
    if pod.phase is not PodPhase.STOPPING:
        pod.phase = PodPhase.RUNNING


# --- decided by the master --------------------------------------------------------------------------------------


def apply_pod_command(state: State, command: StartPod | StopPod | PromoteWorker, now_s: float) -> None:
    """Apply that a pod is to be started or stopped, or that its worker takes part."""
    if isinstance(command, PromoteWorker):
        apply_promotion(state, command, now_s)
        return
    pod = state.pods.get(command.pod)
    state.timers.pop(timers.pending_of(command.pod), None)
    if isinstance(command, StartPod):
        if pod is None:
            state.pods[command.pod] = Pod(name=command.pod, service=command.service)
        else:
            pod.phase, pod.pending = PodPhase.ORDERED, ""
    elif pod and pod.phase is not PodPhase.EXITED:
        pod.phase = PodPhase.STOPPING
        pod.was_unresponsive, pod.is_unresponsive = pod.is_unresponsive or pod.was_unresponsive, False


def apply_failed_pod_command(state: State, command: StartPod | StopPod | PromoteWorker, time_s: float) -> None:
    """Apply that the platform or a worker did not execute a command about a pod: the same is decided again."""
    if isinstance(command, PromoteWorker):
        apply_failed_promotion(state, command, time_s)
        return
    pod = state.pods.get(command.pod)
    if pod and pod.phase is PodPhase.ORDERED:
        pod.phase = PodPhase.EXITED
        state.timers[timers.restart_of(pod.name)] = time_s + timers.RETRY_S
    elif pod and isinstance(command, StopPod) and pod.has_process and pod.instance == command.instance:
        waits = pod.service is Service.WORKER and pod.incarnation and not pod.is_promoted
        pod.phase = PodPhase.RUNNING if pod.was_ready else PodPhase.WAITING if waits else PodPhase.STARTING
        if command.kill:
            pod.is_unresponsive = True
        else:
            state.timers[timers.restart_of(pod.name)] = time_s + timers.RETRY_S
