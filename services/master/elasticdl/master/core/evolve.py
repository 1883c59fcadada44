"""``evolve``: applies the log to the state, one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

from elasticdl.master.core import identity, timers
from elasticdl.master.core.apply_commands import on_commands_ran, on_decided
from elasticdl.master.core.closing.apply import on_ledgers_read
from elasticdl.master.core.evaluation.apply import on_model_pinned
from elasticdl.master.core.evaluation.triggers import on_interval_elapsed, on_step_reached
from elasticdl.master.core.job import lifecycle
from elasticdl.master.core.moves.apply import on_freeze_timeout, on_group_held
from elasticdl.master.core.pods import apply as pods
from elasticdl.master.core.pods.restarts import decide_pods
from elasticdl.master.core.pods.spares import on_model_built
from elasticdl.master.core.rings.apply import on_replica_differed, on_ring_member_ready
from elasticdl.master.core.snapshots.apply import on_snapshot_damaged, on_snapshot_taken, on_table_counted
from elasticdl.master.core.state import State
from elasticdl.master.core.training import apply as training
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.events import Envelope, Event, LogRecord
from elasticdl.shared.messages.measurements import BatchSlow, ProcessMeasured, RunMeasured, TableCounted
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.names import Service

EVENTS_WITHOUT_POD_CHANGES: Set[type[Event]] = {
    events.TaskTaken,
    events.TasksTaken,
    events.TaskFinished,
    events.TasksFinished,
    events.TaskReturned,
    events.RoundDelayed,
    BatchSlow,
    events.StepReached,
    TableCounted,
    RunMeasured,
    ProcessMeasured,
}
"""After these events the master need not run ``decide_pods`` again: no pod has to start or stop because of them."""

_TASK_COMMANDS = (commands.Dispatch, commands.ReturnDelivery)

CLOCKS = (Service.MASTER, Service.LAUNCHER)
"""Services whose clocks the job follows. They run no code of the user, and one of them reports every few seconds."""


def evolve(state: State, record: LogRecord) -> State:
    """Apply one record; a record that was applied before changes nothing. Returns the same state, changed in place."""
    envelope = record.envelope
    event = envelope.event
    if envelope.service is Service.MASTER and record.seq > state.master_seq:
        state.master_seq = record.seq
    if isinstance(event, events.MessageUnreadable):
        state.unreadable_messages.add(record, event, state.seen)
        return state
    if problem := identity.problem_of(state, envelope):
        subject = f"event.{envelope.name}"
        message = events.MessageUnreadable(subject=subject, seq=record.seq, reason=problem)
        state.unreadable_messages.add(record, message, {})
        return state
    if not identity.is_new(state, envelope):
        return state
    identity.note_sender(state, envelope)
    if isinstance(event, events.Decided):
        state.pending_commands.append((record.seq, event))
    else:
        state.seq = record.seq
        state.last_id = envelope.incarnation, envelope.number
    sender = identity.classify_sender(state, envelope)
    envelope = with_agreed_time(state, envelope, sender)
    match sender:
        case identity.Sender.CURRENT:
            _apply(state, envelope)
        case identity.Sender.NOT_REPORTED:
            state.pods[envelope.name].buffer(identity.with_declared_sender(state, envelope))
        case identity.Sender.FORMER:
            pass
    return state


def with_agreed_time(state: State, envelope: Envelope, sender: identity.Sender) -> Envelope:
    """The record with its time by the clock of the job, which only ``CLOCKS`` and the start of a run move."""
    sent_s = envelope.time_s
    if (
        sent_s > state.clock_s
        and sender is identity.Sender.CURRENT
        and (envelope.service in CLOCKS or isinstance(envelope.event, identity.OPENS_A_RUN))
    ):
        state.clock_s = sent_s
    time_s = agreed_s(sent_s, state.clock_s)
    if time_s > state.now_s:
        state.now_s = time_s
    return envelope if time_s == sent_s else replace(envelope, time_s=time_s)


def _apply(state: State, envelope: Envelope) -> None:
    """Apply a record that counts; after the start of a process also the events that it has sent before."""
    event = envelope.event
    kind = type(event)
    HANDLERS[kind](state, envelope, event)
    if kind not in EVENTS_WITHOUT_POD_CHANGES:
        state.pods_settled = state.pods_settled and _concerns_only_tasks(event)
    elif not state.pods_settled:
        state.pods_settled = state.spec is not None and not decide_pods(state)
    if isinstance(event, events.PodStarted) and (pod := state.pods.get(event.pod)):
        early, pod.early_events = pod.early_events, []
        for each in early:
            if each.instance == pod.instance:
                _apply(state, each)


def _concerns_only_tasks(event: Event) -> bool:
    """Whether a decision, or its outcome, is only about tasks: most of a master's records are."""
    if isinstance(event, events.Decided):
        return all(isinstance(command, _TASK_COMMANDS) for command in event.commands)
    return isinstance(event, events.CommandsRan) and not event.failures


def on_timer_fired(state: State, envelope: Envelope, event: events.TimerFired) -> None:
    """Apply a timer; one that only delays something has no effect but its removal.

    The timer may have been set again, to another time, or removed since it fired: then it has no effect at all.
    """
    if state.timers.get(event.timer) != event.due_s:
        return
    del state.timers[event.timer]
    match event.timer:
        case timers.EVALUATION:
            on_interval_elapsed(state)
        case timers.FREEZE:
            on_freeze_timeout(state)
        case timers.STOP:
            state.stopping.overdue = True
        case timer if pod := timers.pod_of_start(timer):
            pods.on_start_timeout(state, pod)
        case timer if pod := timers.pod_of_pending(timer):
            pods.on_pending_timeout(state, pod, envelope.time_s)
        case _:
            pass


HANDLERS: dict[type[Event], Callable[[State, Envelope, Any], None]] = {
    events.JobSubmitted: lifecycle.on_job_submitted,
    events.JobResumed: lifecycle.on_job_resumed,
    events.StopRequested: lifecycle.on_stop_requested,
    events.ScaleRequested: lifecycle.on_scale_requested,
    events.TermStarted: lifecycle.on_term_started,
    events.PodPending: pods.on_pod_pending,
    events.PodStarted: pods.on_pod_started,
    events.PodExited: pods.on_pod_exited,
    events.ModelBuilt: on_model_built,
    events.WorkerStarted: pods.on_worker_started,
    events.WorkerStopped: pods.on_worker_stopped,
    events.WorkerFailed: pods.on_worker_failed,
    BatchSlow: pods.on_batch_slow,
    events.HeartbeatsMissed: pods.on_heartbeats_missed,
    events.RingMemberReady: on_ring_member_ready,
    events.ReplicaDiffered: on_replica_differed,
    events.PsStarted: pods.on_ps_started,
    events.ModelInitialised: pods.on_model_initialised,
    events.TaskTaken: training.on_task_taken,
    events.TasksTaken: training.on_tasks_taken,
    events.TaskFinished: training.on_task_finished,
    events.TasksFinished: training.on_tasks_finished,
    events.TaskReturned: training.on_task_returned,
    events.TaskFailed: training.on_task_failed,
    events.RoundDelayed: training.on_round_delayed,
    events.SnapshotTaken: on_snapshot_taken,
    events.SnapshotDamaged: on_snapshot_damaged,
    events.GroupHeld: on_group_held,
    events.ModelPinned: on_model_pinned,
    events.StepReached: on_step_reached,
    TableCounted: on_table_counted,
    events.LedgersRead: on_ledgers_read,
    events.TimerFired: on_timer_fired,
    events.CommandsRan: on_commands_ran,
    events.Decided: on_decided,
    RunMeasured: lifecycle.on_run_measured,
    ProcessMeasured: lifecycle.on_process_measured,
}
"""What every kind of event changes; a missing kind is an error."""
