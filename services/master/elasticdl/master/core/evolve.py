"""``evolve``: one record at a time, the log becomes the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elasticdl.master.core import moves as moving
from elasticdl.master.core import timers
from elasticdl.master.core.apply_commands import note_command, note_failed_command
from elasticdl.master.core.closing.closing import note_damaged_final, note_ledgers, reset_closing
from elasticdl.master.core.evaluation import abandon_evaluation, note_evaluation_result, note_merge_result
from elasticdl.master.core.pods.failure import failure_text
from elasticdl.master.core.pods.poison import forget_deaths, note_death
from elasticdl.master.core.pods.state import Holding, Pod, PodPhase
from elasticdl.master.core.runs import note_resumed, note_submitted
from elasticdl.master.core.state import RegisteredSnapshot, State
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import OpenPin, TakeSnapshot
from elasticdl.shared.messages.events import Envelope, Event, ExitCause, LogRecord
from elasticdl.shared.names import NOBODY, Incarnation, Purpose, Service


def evolve(state: State, record: LogRecord) -> State:
    """Take note of one record; a record that the state has seen already changes nothing.

    Returns:
        The same state, changed in place.
    """
    envelope = record.envelope
    if envelope.number <= state.seen.get(envelope.incarnation, 0):
        return state
    state.seen[envelope.incarnation] = envelope.number
    state.now_s = max(state.now_s, envelope.time_s)
    if isinstance(envelope.event, events.Decided):
        state.unran.append((record.seq, envelope.event))
    else:
        state.seq = record.seq
        state.last_id = envelope.id
    if envelope.service is Service.MASTER:
        state.master_seq = max(state.master_seq, record.seq)
    if not _is_of_former_run(state, envelope):
        _NOTES[type(envelope.event)](state, envelope, envelope.event)
    return state


def _is_of_former_run(state: State, envelope: Envelope) -> bool:
    """Whether a launcher that is gone says this: its last words can reach the log after its successor's first."""
    if envelope.service is not Service.LAUNCHER or isinstance(envelope.event, events.JobSubmitted | events.JobResumed):
        return False
    return envelope.incarnation != state.run


# --- the job ----------------------------------------------------------------------------------------------------


def _stop_requested(state: State, _envelope: Envelope, event: events.StopRequested) -> None:
    state.stop_reason = state.stop_reason or event.reason


def _scale_requested(state: State, _envelope: Envelope, event: events.ScaleRequested) -> None:
    state.workers = event.workers or state.workers
    state.ps = event.ps or state.ps


# --- pods -------------------------------------------------------------------------------------------------------


def _pod_started(state: State, envelope: Envelope, event: events.PodStarted) -> None:
    pod = state.pods.get(event.pod)
    if pod is None or pod.service is not event.service:
        return
    pod.pid = event.pid
    pod.starts += 1
    if pod.phase is not PodPhase.STOPPING:
        pod.phase = PodPhase.STARTING
        state.timers[timers.start_of(pod.name)] = envelope.time_s + state.job.limits.start_s
    pod.incarnation = NOBODY
    pod.is_silent = False
    early, pod.early = pod.early, None
    if early:
        _NOTES[type(early.event)](state, early, early.event)


def _is_early(pod: Pod, envelope: Envelope) -> bool:
    """Keep what a process says of its start until its keeper has said that there is a process.

    These are its first words overtaking the keeper's, or the last ones of a process that was dead when they arrived.
    In the second case the pod's next process sets it right.
    """
    if pod.phase not in (PodPhase.ORDERED, PodPhase.EXITED):
        return False
    pod.early = envelope
    return True


def _pod_exited(state: State, envelope: Envelope, event: events.PodExited) -> None:
    pod = state.pods.get(event.pod)
    if pod is None or pod.pid != event.pid:
        return
    state.timers.pop(timers.start_of(pod.name), None)
    ordered = pod.phase is PodPhase.STOPPING or state.is_final
    _drop_holdings(state, pod.incarnation)
    pod.phase = PodPhase.EXITED
    if pod.service is Service.PS and state.training:
        moving.disturb_move(state, pod.name)
        state.training.note_ps_gone(pod.name)
        if not state.is_final:  # What a finished job has shown stays shown.
            abandon_evaluation(state)
            reset_closing(state)
    if ordered:
        return
    if event.cause is ExitCause.REFUSED:
        state.fail(f"{pod.name} can't go on.\n{event.log_tail}".rstrip(), guilty=pod.name)
    elif event.cause is ExitCause.OWN_FAULT or _ended_without_a_word(pod, event):
        pod.faults += 1
        note_death(state, event)
        if pod.faults > state.job.limits.relaunches_max:
            text = f"{pod.name} died {pod.faults} times in a row (exit code {event.exit_code}).\n{event.log_tail}"
            state.fail(text.rstrip(), guilty=pod.name)
    if event.cause is not ExitCause.OUTSIDE and not state.failure:
        state.timers[timers.restart_of(pod.name)] = envelope.time_s + min(0.25 * 2.0**pod.faults, 10.0)


def _ended_without_a_word(pod: Pod, event: events.PodExited) -> bool:
    """Whether a worker ended "well" on its own account: the model's code, or a library, has ended the process."""
    said = pod.incarnation and pod.goodbye == pod.incarnation
    return event.cause is ExitCause.FINISHED and pod.service is Service.WORKER and not said


def _drop_holdings(state: State, incarnation: Incarnation) -> None:
    if not incarnation:
        return
    for task, holders in list(state.holdings.items()):
        holding = holders.pop(incarnation, None)
        if holding:
            state.to_return.append(holding.reply)
        if not holders:
            del state.holdings[task]


# --- workers ----------------------------------------------------------------------------------------------------


def _worker_started(state: State, envelope: Envelope, event: events.WorkerStarted) -> None:
    pod = state.pods.get(envelope.name)
    if pod is None or _is_early(pod, envelope):
        return
    pod.incarnation = envelope.incarnation
    pod.notes = event.notes
    state.timers.pop(timers.start_of(pod.name), None)
    if pod.phase is not PodPhase.STOPPING:
        pod.phase = PodPhase.RUNNING


def _worker_stopped(state: State, envelope: Envelope, _event: events.WorkerStopped) -> None:
    _drop_holdings(state, envelope.incarnation)
    pod = state.pods.get(envelope.name)
    if pod is not None:
        pod.goodbye = envelope.incarnation


def _worker_failed(state: State, envelope: Envelope, event: events.WorkerFailed) -> None:
    text = event.message + (f"\n{event.traceback}" if event.traceback else "")
    state.fail(text, guilty=envelope.name, kind=event.kind)


def _task_taken(state: State, envelope: Envelope, event: events.TaskTaken) -> None:
    state.holdings.setdefault(event.task, {})[envelope.incarnation] = Holding(
        worker=envelope.name,
        incarnation=envelope.incarnation,
        dispatch=event.dispatch,
        attempt=event.attempt,
        reply=event.reply,
        since_s=envelope.time_s,
    )


def _task_finished(state: State, envelope: Envelope, event: events.TaskFinished) -> None:
    _release(state, envelope, event)
    pod = state.pods.get(envelope.name)
    if pod:
        pod.faults = 0
    match event.task.purpose:
        case Purpose.TRAIN:
            _train_finished(state, envelope, event)
        case Purpose.EVALUATE:
            note_evaluation_result(state, event)
        case Purpose.MERGE:
            note_merge_result(state, event, envelope.time_s)
        case Purpose.EXPORT:
            state.closing.exported = True
        case Purpose.PREDICT:
            pass


def _train_finished(state: State, envelope: Envelope, event: events.TaskFinished) -> None:
    training = state.training
    if training is None:
        return
    before = training.epochs_complete
    if not state.first_step_s:
        state.first_step_s = envelope.time_s - max(0.0, event.seconds.get("total", 0.0))
    completed = training.note_finished(event, envelope.time_s, state.placement.version)
    if not completed:
        return
    state.trained_s = envelope.time_s
    forget_deaths(state, event.task)
    state.failures.pop(event.task, None)
    if training.epochs_complete > before and state.job.validation and not training.is_complete:
        by_clock_or_step = state.job.evaluation_steps or state.job.evaluation_interval_s
        if not by_clock_or_step:
            state.evaluation_due.append(f"epoch {training.epochs_complete} is complete")


def _task_returned(state: State, envelope: Envelope, event: events.TaskReturned) -> None:
    _release(state, envelope, event)
    if state.training and event.task.purpose is Purpose.TRAIN:
        state.training.count(event, envelope.time_s)


def _task_failed(state: State, envelope: Envelope, event: events.TaskFailed) -> None:
    _release(state, envelope, event)
    failures = state.failures.setdefault(event.task, [])
    failures.append(event)
    final = event.kind in (events.FailureKind.NOT_FINITE, events.FailureKind.DATA, events.FailureKind.ENVIRONMENT)
    if final or len(failures) >= state.job.limits.attempts_max:
        state.fail(failure_text(event, envelope.name), guilty=envelope.name, kind=event.kind)


def _release(
    state: State, envelope: Envelope, event: events.TaskFinished | events.TaskReturned | events.TaskFailed
) -> None:
    holders = state.holdings.get(event.task)
    if holders:
        holders.pop(envelope.incarnation, None)
        if not holders:
            del state.holdings[event.task]


# --- parameter servers ------------------------------------------------------------------------------------------


def _ps_started(state: State, envelope: Envelope, event: events.PsStarted) -> None:
    pod = state.pods.get(envelope.name)
    if pod is None or state.training is None or event.claim < pod.claim or _is_early(pod, envelope):
        return
    pod.claim = event.claim
    if pod.incarnation and pod.incarnation != envelope.incarnation and pod.phase is PodPhase.RUNNING:
        moving.disturb_move(state, pod.name)
        abandon_evaluation(state)
        reset_closing(state)
    pod.incarnation = envelope.incarnation
    pod.address = event.address
    state.timers.pop(timers.start_of(pod.name), None)
    if event.ledgers:
        pod.with_model = pod.incarnation
    if pod.phase is not PodPhase.STOPPING:
        pod.phase = PodPhase.RUNNING
    moving.note_ledgers_of(state, envelope, event)


def _model_initialised(state: State, envelope: Envelope, _event: events.ModelInitialised) -> None:
    pod = state.pods.get(envelope.name)
    if pod is None:
        return
    if pod.incarnation == envelope.incarnation:
        pod.faults = 0
        pod.with_model = envelope.incarnation
    elif pod.phase in (PodPhase.ORDERED, PodPhase.EXITED):
        pod.with_model = envelope.incarnation  # Its keeper's word is late, as with its start.


def _snapshot_taken(state: State, envelope: Envelope, event: events.SnapshotTaken) -> None:
    pod = state.pods.get(envelope.name)
    if pod is None:
        return
    if pod.incarnation != envelope.incarnation:
        # A former life that is still there has taken the order: the present one may not have heard it.
        asked = event.request and event.request in (state.closing.request, state.stopping.request)
        if asked and envelope.name not in state.closing.manifests:
            order = TakeSnapshot(ps=envelope.name, request=event.request, reason="")
            note_failed_command(state, order, envelope.time_s)
        return
    pod.faults = 0
    moving.note_donor_snapshot(state, envelope.name, event)
    if event.move:
        return
    state.snapshots[envelope.name] = RegisteredSnapshot(
        manifest=event.manifest,
        size_bytes=event.size_bytes,
        seconds=event.seconds,
        time_s=envelope.time_s,
        step=min((group.ledger.step for group in event.ledgers), default=0),
    )
    damaged = state.closing.damaged.get(envelope.name, ())
    if event.request and event.request == state.closing.request and event.manifest not in damaged:
        state.closing.manifests[envelope.name] = event.manifest
    if event.request and event.request == state.stopping.request:
        state.stopping.saved.add(envelope.name)


def _snapshot_damaged(state: State, _envelope: Envelope, event: events.SnapshotDamaged) -> None:
    state.damaged[event.object] = event
    note_damaged_final(state, event)


def _model_pinned(state: State, envelope: Envelope, event: events.ModelPinned) -> None:
    evaluation = state.evaluation
    pod = state.pods.get(envelope.name)
    if evaluation is None or evaluation.number != event.evaluation:
        # It was opened after its evaluation had come to an end: nobody will read it.
        if pod and pod.incarnation == envelope.incarnation and pod.phase is PodPhase.RUNNING:
            state.pins_to_close.add((envelope.name, event.evaluation))
        return
    if pod is None or pod.incarnation != envelope.incarnation:
        if envelope.name not in evaluation.pins:  # As with snapshots.
            note_failed_command(state, OpenPin(ps=envelope.name, evaluation=evaluation.number), envelope.time_s)
        return
    evaluation.pins[envelope.name] = event.step
    evaluation.incarnations[envelope.name] = envelope.incarnation


def _step_reached(state: State, envelope: Envelope, event: events.StepReached) -> None:
    first_ps = next(state.pods_of(Service.PS), None)
    if not first_ps or first_ps.name != envelope.name or event.step <= state.step_reached:
        return
    state.step_reached = event.step
    if state.job.validation:
        state.evaluation_due.append(f"step {event.step} is reached")


# --- the master itself ------------------------------------------------------------------------------------------


def _term_started(state: State, _envelope: Envelope, event: events.TermStarted) -> None:
    state.term = event.term


def _timer_fired(state: State, _envelope: Envelope, event: events.TimerFired) -> None:
    state.timers.pop(event.timer, None)
    if event.timer == timers.EVALUATION and state.job.validation:
        state.evaluation_due.append(f"{state.job.evaluation_interval_s:g} s have passed")
    moving.give_up_frozen(state, event.timer)
    if event.timer == timers.STOP:
        state.stopping.overdue = True
    starting = timers.pod_of_start(event.timer)
    pod = state.pods.get(starting) if starting else None
    if pod and pod.phase is PodPhase.STARTING:
        pod.is_silent = True


def _silence_noticed(state: State, _envelope: Envelope, event: events.SilenceNoticed) -> None:
    pod = state.pods.get(event.pod)
    if pod and pod.incarnation == event.incarnation and pod.phase is PodPhase.RUNNING:
        pod.is_silent = True
        _drop_holdings(state, pod.incarnation)


def _ledgers_read(state: State, _envelope: Envelope, event: events.LedgersRead) -> None:
    note_ledgers(state, event)


def _commands_ran(state: State, envelope: Envelope, event: events.CommandsRan) -> None:
    decided = next((decided for seq, decided in state.unran if seq == event.up_to), None)
    if decided:
        for failure in event.failures:
            note_failed_command(state, decided.commands[failure.position], envelope.time_s)
    state.unran = [(seq, decided) for seq, decided in state.unran if seq > event.up_to]


def _decided(state: State, _envelope: Envelope, event: events.Decided) -> None:
    for command in event.commands:
        note_command(state, command, event.now_s)


_NOTES: dict[type[Event], Callable[[State, Envelope, Any], None]] = {
    events.JobSubmitted: note_submitted,
    events.JobResumed: note_resumed,
    events.StopRequested: _stop_requested,
    events.ScaleRequested: _scale_requested,
    events.PodStarted: _pod_started,
    events.PodExited: _pod_exited,
    events.WorkerStarted: _worker_started,
    events.WorkerStopped: _worker_stopped,
    events.WorkerFailed: _worker_failed,
    events.TaskTaken: _task_taken,
    events.TaskFinished: _task_finished,
    events.TaskReturned: _task_returned,
    events.TaskFailed: _task_failed,
    events.PsStarted: _ps_started,
    events.ModelInitialised: _model_initialised,
    events.SnapshotTaken: _snapshot_taken,
    events.SnapshotDamaged: _snapshot_damaged,
    events.GroupHeld: moving.note_held,
    events.ModelPinned: _model_pinned,
    events.StepReached: _step_reached,
    events.TermStarted: _term_started,
    events.TimerFired: _timer_fired,
    events.SilenceNoticed: _silence_noticed,
    events.LedgersRead: _ledgers_read,
    events.CommandsRan: _commands_ran,
    events.Decided: _decided,
}
