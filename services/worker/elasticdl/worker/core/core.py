"""The worker's core: start, taking tasks, stop, and what happens when the worker can't continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from elasticdl.shared.errors import (
    ElasticDLError,
    InvariantError,
    NoSpaceError,
    PermanentError,
    ProtocolError,
    TransientError,
    UserError,
)
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import StopRequested as JobStopRequested
from elasticdl.shared.messages.events import TasksTaken, TaskTaken, WorkerFailed, WorkerStarted, WorkerStopped
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.process.core_runner import SetTimer, TimerFired
from elasticdl.shared.process.exit_codes import EXIT_AWAY, EXIT_REFUSED
from elasticdl.shared.process.procedures import Procedure
from elasticdl.worker import failures
from elasticdl.worker.core import events, pipelining
from elasticdl.worker.core.auxiliary_tasks import AuxiliaryTasks
from elasticdl.worker.core.commands import (
    AskProgress,
    Command,
    Exit,
    ExtendLease,
    InitialiseModel,
    NakTask,
    PublishEvent,
    PublishEvents,
    TakeTasks,
)
from elasticdl.worker.core.effects import Effects
from elasticdl.worker.core.pipelining import Conditions
from elasticdl.worker.core.settings import CoreSettings
from elasticdl.worker.core.tasks.leased import LeasedTask, LeasedTasks
from elasticdl.worker.core.tasks.outcomes import REPORT_TIMER, TaskOutcomes
from elasticdl.worker.core.training import PULL_TIMER, Training
from elasticdl.worker.ps_client.requests import TaskProgress

_NOT_BEGUN = TaskProgress(next_batch=0, credits={})
_TAKEN_TOGETHER_MAX = 5
"""Tasks of one ``TasksTaken``: as many as fit into an event on the log, with numbers of 8 digits."""
LEASE_TIMER = "extend leases"
GRACE_TIMER = "stop grace"


class WorkerCore:
    """Decides everything that a worker does; see the package."""

    def __init__(self, settings: CoreSettings) -> None:
        self._settings = settings
        self._effects = Effects()
        self.leases = LeasedTasks(lease_s=settings.lease_s, deadline_s=settings.lease_deadline_s)
        self._outcomes = TaskOutcomes(self._effects, failure_pause_s=settings.failure_pause_s)
        self.training = Training(settings, self._effects, self.leases, self._outcomes)
        self._auxiliary = AuxiliaryTasks(settings, self._effects, self.leases, self._outcomes)
        self._is_running = False
        self._is_taking = False
        self._beginning = 0
        """Delivered tasks whose progress is not known yet."""
        self._queue_is_empty = False
        self._has_found_none = False
        """Whether the queue had no task the last time; batches may wait all the same."""
        self._stop_reason = ""
        self._is_ending = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            events.Started: self._on_started,
            events.StopRequested: self._on_stop_requested,
            events.TasksDelivered: self._on_tasks_delivered,
            events.QueueEmpty: self._on_queue_empty,
            events.BatchRead: self._on_batch,
            events.BatchUnreadable: self._on_batch,
            events.BatchFailed: self._on_batch,
            events.BatchPulled: self._on_batch,
            events.PinLost: self._on_batch,
            events.PullDelayed: self._on_batch,
            events.BatchComputed: self._on_batch,
            events.BatchPushed: self.training.on_pushed,
            events.ProgressMade: lambda _: self.leases.progress(self._effects.now_s),
            events.SlowBatchSeen: lambda event: self._effects.start(self._publish(event.event)),
            events.CommandDone: lambda event: self._effects.done(event.number, event.result),
            events.CommandFailed: lambda event: self._effects.failed(event.number, event.error),
            events.ExecutionFailed: lambda event: self._cannot_continue(event.error),
            TimerFired: self._on_timer,
        }
        self._training_handlers: dict[type, Callable[[Any], None]] = {
            events.BatchRead: self.training.on_read,
            events.BatchUnreadable: self.training.on_unreadable,
            events.BatchFailed: self.training.on_failed,
            events.BatchPulled: self.training.on_pulled,
            events.PullDelayed: self.training.on_pull_delayed,
            events.BatchComputed: self.training.on_computed,
        }

    def handle(self, event: events.Event, now_s: float) -> Sequence[Command | SetTimer]:
        """Process one event.

        Args:
            now_s: monotonic time in seconds.

        Returns:
            Commands in the order of their execution within each lane.

        Raises:
            InvariantError: the event does not fit the state.
        """
        self._effects.now_s = now_s
        try:
            self._handlers[type(event)](event)
            if self._is_running and not self._is_ending:
                self._advance()
        except InvariantError:
            raise
        except ElasticDLError as error:  # A procedure's command failed, and the procedure has no answer to that.
            self._cannot_continue(error)
        return self._effects.drain()

    def check(self) -> None:
        """Verify the invariants."""
        self.training.check()
        if self._auxiliary.is_computing and not pipelining.is_between_batches(self.training.window):
            raise InvariantError("an evaluation runs beside a training batch")

    # --- start ----------------------------------------------------------------------------------------------------

    def _on_started(self, event: events.Started) -> None:
        if not self._is_ending:
            self._effects.start(self._start(event.notes))

    def _start(self, notes: tuple[str, ...]) -> Procedure[None]:
        yield InitialiseModel()
        if self._is_ending:
            return
        yield PublishEvent(event=WorkerStarted(notes=notes))
        self._is_running = True
        self._set_lease_timer()

    @staticmethod
    def _publish(event: BatchSlow | JobStopRequested) -> Procedure[None]:
        yield PublishEvent(event=event)

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _on_tasks_delivered(self, event: events.TasksDelivered) -> None:
        self._is_taking = False
        if self._is_stopping or self._is_ending:
            for lease in event.leases:
                self._effects.issue(NakTask(lease=lease))
            return
        self._queue_is_empty = self._has_found_none = False
        self._effects.start(self._begin(event.leases))

    def _on_queue_empty(self, event: events.QueueEmpty) -> None:
        self._is_taking, self._has_found_none = False, True
        if event.is_unavailable:
            self._outcomes.pause()
        self._queue_is_empty = not self.training.order.has_next and not self._beginning
        self.training.finished.report()

    def _begin(self, leases: Sequence[LeasedTask]) -> Procedure[None]:
        """Begin what is new; a delivery that joins another one needs nothing more."""
        new = []
        for lease in leases:
            if not self.leases.joins(lease):
                new.append(lease)
            self.leases.add(lease, self._effects.now_s)
        self._beginning += 1
        yield PublishEvents(events=tuple(taken_events(leases)))
        for lease in new:
            if not self.leases.is_leased(lease):
                continue
            if lease.message.task.purpose is Purpose.TRAIN:
                yield from self._begin_training(lease)
            else:
                self._auxiliary.add(lease)
        self._beginning -= 1

    def _begin_training(self, lease: LeasedTask) -> Procedure[None]:
        """Begin a new task with its first batch; the answer to the first push tells if that is wrong."""
        task = lease.message.task
        if lease.is_first:
            progress = _NOT_BEGUN
        else:
            batches = self._settings.plan.batches_of(TaskId(task.number))
            progress = yield AskProgress(task=TaskId(task.number), batches=batches)
        if self.leases.is_leased(lease) and not self._is_stopping:
            self.training.begin(task, progress)

    def _on_batch(self, event: Any) -> None:
        if event.ref.task.purpose is Purpose.TRAIN:
            self._training_handlers[type(event)](event)
        else:
            self._auxiliary.on_evaluation(event)

    def _on_timer(self, event: TimerFired) -> None:
        if event.name == LEASE_TIMER:
            for lease in self.leases.to_extend(self._effects.now_s):
                self._effects.issue(ExtendLease(lease=lease))
            self._set_lease_timer()
        elif event.name == PULL_TIMER:
            self.training.on_pull_timer()
        elif event.name == REPORT_TIMER:
            self.training.finished.report()
        elif event.name == GRACE_TIMER and not self._is_ending:
            self._end(0)

    def _set_lease_timer(self) -> None:
        self._effects.issue(SetTimer(name=LEASE_TIMER, due_s=self._effects.now_s + self.leases.interval_s))

    # --- what may start now ---------------------------------------------------------------------------------------

    def _advance(self) -> None:
        self._advance_training()
        while not self._is_stopping and self._may_start_auxiliary() and self._auxiliary.advance():
            self._advance_training()
        if self._is_stopping:
            self._end_if_idle()
        elif self._wants_task():
            self._is_taking = True
            self._effects.issue(TakeTasks(wait_s=self._patience_s(), count=self.training.tasks_at_once))

    def _may_start_auxiliary(self) -> bool:
        return self._auxiliary.waits and pipelining.may_start_auxiliary(self.training.window, self._settings.pipeline)

    def _advance_training(self) -> None:
        conditions = Conditions(
            queue_is_empty=self._queue_is_empty,
            auxiliary_waits=self._auxiliary.is_active,
            is_stopping=self._is_stopping,
        )
        while self.training.advance(conditions):
            pass

    def _wants_task(self) -> bool:
        now_s = self._effects.now_s
        if (
            self._is_taking
            or self._beginning
            or now_s < self._outcomes.resume_taking_s
            or self.leases.is_stalled(now_s)
        ):
            return False
        if not self.training.needs_task and not self.training.wants_sibling(now_s):
            return False
        waits = pipelining.waits_for_successor(self.training.window, self._settings.pipeline)
        return waits or not self._auxiliary.waits

    def _patience_s(self) -> float:
        """Nothing may follow the last task of an epoch for a while, so its last batch need not wait for a successor."""
        if self._has_found_none:
            return self._settings.idle_poll_s
        plan = self._settings.plan
        ends = any((task.number + 1) % plan.tasks_per_epoch == 0 for task in self.training.order.tasks)
        last = TaskRef(purpose=Purpose.TRAIN, number=plan.tasks - 1)
        return 0.0 if ends or last in self.training.order.tasks else self._settings.patience_s

    # --- end ------------------------------------------------------------------------------------------------------

    @property
    def _is_stopping(self) -> bool:
        return bool(self._stop_reason)

    def _on_stop_requested(self, event: events.StopRequested) -> None:
        if self._is_stopping:
            return
        self._stop_reason = event.reason
        if self._is_running:
            due_s = self._effects.now_s + self._settings.stop_grace_s
            self._effects.issue(SetTimer(name=GRACE_TIMER, due_s=due_s))
        elif not self._is_ending:
            self._end(0)

    def _end_if_idle(self) -> None:
        """Stop once the running batch is pushed and every outcome of a task is on record."""
        self.training.finished.report()
        if not pipelining.is_between_batches(self.training.window) or self._auxiliary.is_computing:
            return
        if not self._outcomes.running:
            self._end(0)

    def _end(self, exit_code: int) -> None:
        self._is_ending = True
        self._auxiliary.stop()
        self._effects.start(self._return_everything(exit_code))

    def _return_everything(self, exit_code: int) -> Procedure[None]:
        # While the broker is unavailable the leases expire, and the launcher sees the end of the process.
        with suppress(TransientError):
            for task in self.leases.tasks:
                yield from self.training.returning(task, self._stop_reason)
            yield PublishEvent(event=WorkerStopped(reason=self._stop_reason))
        self._effects.issue(Exit(exit_code=exit_code, reason=self._stop_reason if exit_code else ""))

    def _cannot_continue(self, error: ElasticDLError) -> None:
        """The broker or a ps was unavailable for too long, or the job can't run here."""
        if self._is_ending:
            return
        if isinstance(error, TransientError):
            self._stop_reason = self._stop_reason or str(error)
            self._end(EXIT_AWAY)
        elif isinstance(error, NoSpaceError):
            self._stop_reason = self._stop_reason or str(error)
            self._effects.start(self._publish(JobStopRequested(reason=str(error))))
            self._end(0)
        elif isinstance(error, (UserError, PermanentError, ProtocolError)):
            self._is_ending = True
            self._effects.start(self._report_failure(failures.of_start(error)))
        else:
            raise InvariantError(f"unexpected error: {error}") from error

    def _report_failure(self, failure: failures.Failure) -> Procedure[None]:
        event = WorkerFailed(kind=failure.kind, message=failure.message, traceback=failure.traceback)
        with suppress(ElasticDLError):  # The log may be the reason of the failure.
            yield PublishEvent(event=event)
        self._effects.issue(Exit(exit_code=EXIT_REFUSED, reason=failure.message))


def taken_events(leases: Sequence[LeasedTask]) -> Iterator[TaskTaken | TasksTaken]:
    """Records that tasks were taken, in the order of the leases."""
    taken = [
        TaskTaken(task=lease.message.task, dispatch=lease.message.dispatch, attempt=lease.attempt, reply=lease.reply)
        for lease in leases
    ]
    for start in range(0, len(taken), _TAKEN_TOGETHER_MAX):
        some = taken[start : start + _TAKEN_TOGETHER_MAX]
        yield TasksTaken(taken=tuple(some)) if len(some) > 1 else some[0]
