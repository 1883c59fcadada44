"""Which records count: those of the present run, and of the present instance of each pod, with named exceptions.

This is the only place that decides which records of a former run or a former instance still count.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from elasticdl.master.core.state import State
from elasticdl.shared.bus.ports import EVENTS_AT_ONCE_MAX
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages import events
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import NO_INSTANCE, NOBODY, Incarnation, PodInstance, Service

OPENS_A_RUN = (events.JobSubmitted, events.JobResumed)
OF_FORMER_INSTANCES = (
    events.TaskFinished,
    events.TasksFinished,
    events.TaskReturned,
    events.SnapshotTaken,
    events.ModelPinned,
)
"""Events of a former instance that still count, because their handlers compare more than the name:

- TaskFinished, TasksFinished, TaskReturned: the delivery is off the queue. The incarnations of the ps in it decide
  about the credit.
- SnapshotTaken, ModelPinned: an order for the present instance has reached a former one, so it is given again.
"""

NUMBERS_SKIPPED_MAX = 1 << 20
"""Events that a log can lose between two of the same process."""
_UNDECLARED = NOBODY, NO_INSTANCE
_ABOUT_TASKS = (events.TaskTaken, events.TaskFinished, events.TaskReturned, events.TaskFailed, events.RoundDelayed)
_ABOUT_SEVERAL_TASKS = (events.TasksTaken, events.TasksFinished)


class Sender(Enum):
    """The sender of a record."""

    CURRENT = "current"
    NOT_REPORTED = "not reported"
    """A process whose start has not been reported yet, or that ended before another one is reported."""
    FORMER = "former"
    """A former run or a former instance: the record has no effect."""


def problem_of(state: State, envelope: Envelope) -> str:
    """Why a record can't be one of this job, although it can be read; empty: it can.

    Such a record would hide the later ones of its sender, or name what the plan does not have.
    """
    last = state.seen.get(envelope.incarnation, 0)
    if last and envelope.number > last + NUMBERS_SKIPPED_MAX:
        return f"number {envelope.number} follows number {last}"
    if state.spec is not None:
        event = envelope.event
        if isinstance(event, _ABOUT_TASKS):
            return "" if state.spec.has_task(event.task) else f"the job has no task {event.task}"
        if isinstance(event, _ABOUT_SEVERAL_TASKS):
            for each in events.one_by_one(event):
                if isinstance(each, _ABOUT_TASKS) and not state.spec.has_task(each.task):
                    return f"the job has no task {each.task}"
    return ""


def is_new(state: State, envelope: Envelope) -> bool:
    """Note a record's number; whether the record was not applied before."""
    sender, number = envelope.incarnation, envelope.number
    last = state.seen.get(sender, 0)
    if number > last:
        state.seen[sender] = number
        if number > last + 1:
            between = range(max(last + 1, number - EVENTS_AT_ONCE_MAX), number)
            state.skipped[sender] = {*state.skipped.get(sender, ()), *between}
        return True
    skipped = state.skipped.get(sender, set())
    if number not in skipped:
        return False
    skipped.remove(number)
    if not skipped:
        del state.skipped[sender]
    return True


def note_sender(state: State, envelope: Envelope) -> None:
    """Note the run and the instance that a record declares for itself and for later ones of its sender."""
    if envelope.run or envelope.instance:
        state.senders[envelope.incarnation] = envelope.run, envelope.instance


def declared_sender(state: State, envelope: Envelope) -> tuple[Incarnation, PodInstance]:
    """The run and the instance of a record's sender, as this record or an earlier one has declared them."""
    return state.senders.get(envelope.incarnation, _UNDECLARED)


def with_declared_sender(state: State, envelope: Envelope) -> Envelope:
    """The record with the run and the instance of its sender."""
    run, instance = declared_sender(state, envelope)
    return replace(envelope, run=run, instance=instance)


def has_sent(state: State, heartbeat: Heartbeat) -> bool:
    """Whether a heartbeat is of a process of the job. Anyone may invent names, so those of others are not stored."""
    pod = state.pods.get(heartbeat.name)
    return pod is not None and pod.incarnation in (NOBODY, heartbeat.incarnation)


def _may_open_run(state: State, envelope: Envelope, event: events.JobSubmitted | events.JobResumed) -> bool:
    """Whether an event opens a run. A run that has begun must not begin again, nor lose its log's state to another one.

    A job is submitted once in a log. A resume names the run after which it was planned, unless the log was lost: then
    it follows the submission that its own run has repeated.
    """
    if isinstance(event, events.JobSubmitted):
        return state.spec is None
    is_own = envelope.incarnation == state.run and not state.pods
    return is_own or event.continues == state.run != NOBODY


def classify_sender(state: State, envelope: Envelope) -> Sender:
    """Whether a record counts now, once its process is reported, or not at all.

    Records of masters always count: the log itself refuses those of a former master. Clients belong to no run.
    """
    event = envelope.event
    if isinstance(event, OPENS_A_RUN):
        return Sender.CURRENT if _may_open_run(state, envelope, event) else Sender.FORMER
    service = envelope.service
    if service is Service.MASTER or service is Service.CLIENT:
        return Sender.CURRENT
    if service is Service.LAUNCHER:
        return Sender.CURRENT if envelope.incarnation == state.run else Sender.FORMER
    pod = state.pods.get(envelope.name)
    run, instance = state.senders.get(envelope.incarnation, _UNDECLARED)
    if run != state.run or pod is None:
        return Sender.FORMER
    if instance == pod.instance != NO_INSTANCE or isinstance(event, OF_FORMER_INSTANCES):
        return Sender.CURRENT
    return Sender.FORMER if pod.instance else Sender.NOT_REPORTED
