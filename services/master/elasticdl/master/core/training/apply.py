"""How the workers' reports on tasks and the master's dispatches change the state of training."""

from __future__ import annotations

from elasticdl.master.core.closing.state import EXPORT, EXPORT_TASKS
from elasticdl.master.core.evaluation.apply import (
    apply_evaluation_dispatch,
    on_evaluation_result,
    on_pin_lost,
    on_states_lost,
)
from elasticdl.master.core.evaluation.best import on_saved
from elasticdl.master.core.evaluation.merging import apply_merge_dispatch, on_merge_result, on_merge_returned
from elasticdl.master.core.job.failure import failure_text
from elasticdl.master.core.pods.crashes import forget_crashes
from elasticdl.master.core.prediction.apply import on_prediction
from elasticdl.master.core.state import State
from elasticdl.master.core.training.state import RunningAttempt
from elasticdl.shared.job.tasks import CALLBACKS, LAST_CALLBACKS
from elasticdl.shared.messages.commands import Dispatch
from elasticdl.shared.messages.events import (
    Envelope,
    FailureKind,
    RoundDelayed,
    TaskFailed,
    TaskFinished,
    TaskReturned,
    TasksFinished,
    TasksTaken,
    TaskTaken,
)
from elasticdl.shared.names import Incarnation, Purpose, TaskId

FATAL_FAILURES = (FailureKind.NOT_FINITE, FailureKind.DATA, FailureKind.ENVIRONMENT)
"""Kinds of failure that another attempt would not change: they end the job at once."""
EXPORT_ATTEMPTS_MAX = 2
"""Failures of an export in the user's code before the job fails."""


def on_task_taken(state: State, envelope: Envelope, event: TaskTaken) -> None:
    """Apply that a worker has begun an attempt."""
    state.running_attempts.setdefault(event.task, {})[envelope.incarnation] = RunningAttempt(
        worker=envelope.name,
        incarnation=envelope.incarnation,
        dispatch=event.dispatch,
        attempt=event.attempt,
        reply=event.reply,
        since_s=envelope.time_s,
    )


def on_tasks_taken(state: State, envelope: Envelope, event: TasksTaken) -> None:
    """Apply that a worker has begun attempts of several tasks."""
    for taken in event.taken:
        on_task_taken(state, envelope, taken)


def on_tasks_finished(state: State, envelope: Envelope, event: TasksFinished) -> None:
    """Apply several finished tasks."""
    for finished in event.finished:
        on_task_finished(state, envelope, finished)


def on_task_finished(state: State, envelope: Envelope, event: TaskFinished) -> None:
    """Apply a finished task of any purpose."""
    _end_attempt(state, envelope, event)
    pod = state.pods.get(envelope.name)
    if pod:
        pod.faults = pod.refusals = 0
    if event.task.purpose is not Purpose.TRAIN:
        forget_crashes(state, event.task)
    match event.task.purpose:
        case Purpose.TRAIN:
            _on_train_task_finished(state, envelope, event)
        case Purpose.EVALUATE:
            on_evaluation_result(state, event)
        case Purpose.MERGE:
            on_merge_result(state, event, envelope.time_s)
        case Purpose.EXPORT if event.task.number:
            on_saved(state, event.task.number)
        case Purpose.EXPORT:
            state.closing.exported |= event.dispatch == state.closing.export_dispatch
        case Purpose.PREDICT:
            on_prediction(state, event)


def _on_train_task_finished(state: State, envelope: Envelope, event: TaskFinished) -> None:
    training = state.training
    if training is None:
        return
    if not state.first_step_s:
        state.first_step_s = envelope.time_s - event.times.total_s
    if event.placement_version > state.placement.version:
        state.foreign_placement = max(state.foreign_placement, event.placement_version)
    if not training.on_task_finished(event, envelope, state.placement.version):
        return
    state.trained_s = envelope.time_s
    forget_crashes(state, event.task)
    state.failures.pop(event.task, None)


def on_task_returned(state: State, envelope: Envelope, event: TaskReturned) -> None:
    """Apply that a worker has returned a task to the queue, with the statistics of what it has computed."""
    _end_attempt(state, envelope, event)
    if state.training and event.task.purpose is Purpose.TRAIN:
        state.training.on_task_returned(event, envelope)
    elif event.task.purpose is Purpose.MERGE:
        on_merge_returned(state, event)
        if event.is_dropped:
            on_states_lost(state, event)
    elif event.is_dropped and event.task == EXPORT:
        if event.dispatch == state.closing.export_dispatch:
            state.closing.export_dispatch = 0
    elif event.is_dropped:
        on_pin_lost(state, event, envelope.time_s)


def on_task_failed(state: State, envelope: Envelope, event: TaskFailed) -> None:
    """Apply a failed attempt: the job fails if another attempt can't help, or after too many of them."""
    _end_attempt(state, envelope, event)
    failures = state.failures.setdefault(event.task, [])
    failures.append(event)
    if event.kind in FATAL_FAILURES or _is_of_callbacks(state, event) or len(failures) >= _attempts_max(state, event):
        state.fail(failure_text(event, envelope.name), guilty=envelope.name, kind=event.kind)


def _attempts_max(state: State, event: TaskFailed) -> int:
    """An export reads no data and runs the same code again, so one more attempt shows whether it can work."""
    most = state.job.limits.attempts_max
    return min(most, EXPORT_ATTEMPTS_MAX) if event.task.purpose is Purpose.EXPORT else most


def _is_of_callbacks(state: State, event: TaskFailed) -> bool:
    """Hooks have effects outside of the job, so another attempt would repeat them."""
    merge = state.merges.get(event.task.number) if event.task.purpose is Purpose.MERGE else None
    return merge is not None and merge.label in (CALLBACKS, LAST_CALLBACKS)


def on_round_delayed(state: State, envelope: Envelope, event: RoundDelayed) -> None:
    """Apply that a worker waits for another one, in synchronous training."""
    if state.training and (rounds := state.job.rounds):
        cohort = rounds.cohort(TaskId(event.task.number)).start
        if cohort not in state.training.waiting.values():
            state.training.waiting_since_s = envelope.time_s
        state.training.waiting[envelope.incarnation] = cohort


def _end_attempt(state: State, envelope: Envelope, event: TaskFinished | TaskReturned | TaskFailed) -> None:
    attempts = state.running_attempts.get(event.task)
    if attempts:
        attempts.pop(envelope.incarnation, None)
        if not attempts:
            del state.running_attempts[event.task]


def drop_attempts(state: State, incarnation: Incarnation) -> None:
    """Drop the attempts of a worker that has ended; their deliveries are returned to the queue."""
    if not incarnation:
        return
    if state.training:
        state.training.waiting.pop(incarnation, None)
    for task, attempts in list(state.running_attempts.items()):
        attempt = attempts.pop(incarnation, None)
        if attempt:
            state.deliveries_to_return.append(attempt.reply)
        if not attempts:
            del state.running_attempts[task]


def apply_dispatch(state: State, command: Dispatch) -> None:
    """Apply a dispatch of any purpose."""
    state.dispatches = max(state.dispatches, command.dispatch)
    match command.purpose:
        case Purpose.TRAIN:
            if state.training:
                state.training.on_dispatched(command.tasks)
        case Purpose.EVALUATE:
            apply_evaluation_dispatch(state, command)
        case Purpose.MERGE:
            apply_merge_dispatch(state, command)
        case Purpose.EXPORT if command.tasks == EXPORT_TASKS:
            state.closing.export_dispatch = command.dispatch
        case Purpose.EXPORT:
            if state.evaluation:
                state.evaluation.save_dispatched = True
        case Purpose.PREDICT:
            state.prediction.window.on_dispatched(command.tasks, state.now_s)
