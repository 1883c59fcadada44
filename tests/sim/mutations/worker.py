"""Mutations of the worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, handled, mutation, replaced

from elasticdl.master.core import State
from elasticdl.master.core.evolve import HANDLERS
from elasticdl.shared.messages import events
from elasticdl.shared.messages.events import Envelope
from elasticdl.worker.core import PipelineSettings, WorkerCore, pipelining
from elasticdl.worker.core.batch_clock import BatchClock
from elasticdl.worker.core.batch_order import BatchOrder
from elasticdl.worker.core.commands import AckTask, ReleaseBatch
from elasticdl.worker.core.pipelining import Phase
from elasticdl.worker.core.tasks.leased import LeasedTasks
from elasticdl.worker.core.tasks.outcomes import TaskOutcomes
from elasticdl.worker.core.training import Training
from elasticdl.worker.ps_client import PushOutcome, TaskProgress, connection


@mutation(
    "a worker continues at the least next batch of all groups",
    protects=Protects.EXACTLY_ONCE,
    scenario="the-end-of-the-log-is-lost-with-a-new-placement",
)
def minimum_over_groups() -> Iterator[None]:
    outcome_of, progress_of = PushOutcome.of, TaskProgress.of

    def outcome(replies: Any, lives: Any, version: int) -> Any:
        return replace(
            outcome_of(replies, lives, version), next_batch=max(reply.next_batch for reply in replies.values())
        )

    def progress(replies: Any, lives: Any, version: int) -> Any:
        return replace(
            progress_of(replies, lives, version), next_batch=max(reply.next_batch for reply in replies.values())
        )

    with replaced(PushOutcome, "of", staticmethod(outcome)), replaced(TaskProgress, "of", staticmethod(progress)):
        yield


@mutation("the reply to a push, not the push itself, sets the progress of a task", protects=Protects.EXACTLY_ONCE)
def replies_set_task_progress() -> Iterator[None]:
    original = BatchOrder.answered

    def answered(self: Any, ref: Any, next_batch: int) -> Any:
        return original(self, ref, ref.batch + 1)

    with replaced(BatchOrder, "answered", answered):
        yield


@mutation(
    "two dispatches of an export are two orders",
    protects=Protects.LIVENESS,
    scenario="two-exports-wait-for-a-worker-that-was-cut-off",
)
def dispatches_differ() -> Iterator[None]:
    """Two rules in a row guard this: the worker's, and the master's, which repeats an export that was dropped."""
    original = HANDLERS[events.TaskReturned]

    def on_task_returned(state: State, envelope: Envelope, event: events.TaskReturned) -> None:
        original(state, envelope, replace(event, is_dropped=False))

    with (
        replaced(LeasedTasks, "joins", lambda self, lease: self.has(lease.message.task)),
        replaced(LeasedTasks, "release_dispatch", lambda self, message: self.release(message.task)),
        handled(events.TaskReturned, on_task_returned),
    ):
        yield


@mutation(
    "a task is acknowledged after its TaskFinished is stored",
    protects=Protects.LIVENESS,
    scenario="a-worker-is-killed-after-its-acknowledgement",
)
def event_before_acknowledgement() -> Iterator[None]:
    report, drop = TaskOutcomes.report, TaskOutcomes.drop

    def acknowledge(self: Any, leases: Any) -> None:
        for lease in leases:
            self._effects.issue(AckTask(lease=lease))

    def early_report(self: Any, finished: Any) -> Any:
        for one in finished:
            acknowledge(self, one.leases)
        yield from report(self, finished)

    def early_drop(self: Any, leases: Any, reason: str) -> Any:
        acknowledge(self, leases)
        yield from drop(self, leases, reason)

    with (
        replaced(TaskOutcomes, "report", early_report),
        replaced(TaskOutcomes, "drop", early_drop),
        replaced(TaskOutcomes, "_acknowledge", lambda self, leases: None),
    ):
        yield


@mutation(
    "a worker that hangs in the user's code ends itself at the deadline of the batch",
    protects=Protects.LIVENESS,
    scenario="the-only-worker-hangs",
)
def hung_workers_end_themselves() -> Iterator[None]:
    tick = BatchClock.tick
    with replaced(BatchClock, "tick", lambda self, *arguments: replace(tick(self, *arguments), overdue=())):
        yield


@mutation(
    "a lease is extended only while the last progress is young",
    protects=Protects.LIVENESS,
    scenario="a-worker-waits-for-ever-in-an-evaluation",
)
def young_batches_keep_leases() -> Iterator[None]:
    def to_extend(self: Any, now_s: float) -> Any:
        return [lease for leases in self._leased.values() for lease in leases]

    with replaced(LeasedTasks, "to_extend", to_extend):
        yield


@mutation(
    "a worker that hangs takes no tasks, so its own go to others",
    protects=Protects.LIVENESS,
    scenario="a-worker-waits-for-ever-with-room-for-more-tasks",
)
def hanging_workers_take_no_tasks() -> Iterator[None]:
    wants_task = WorkerCore._wants_task

    def regardless(self: Any) -> bool:
        with replaced(LeasedTasks, "is_stalled", lambda leases, now_s: False):
            return wants_task(self)

    with replaced(WorkerCore, "_wants_task", regardless):
        yield


@mutation("a task that ended here is no longer leased", protects=Protects.LIVENESS)
def ended_tasks_are_not_leased() -> Iterator[None]:
    with replaced(LeasedTasks, "release", lambda self, task: list(self._leased.get(task, []))):
        yield


@mutation("receive buffers are returned only after the step that uses them", protects=Protects.EXACTLY_ONCE)
def buffers_returned_after_the_step() -> Iterator[None]:
    original = Training._compute

    def compute(self: Any, conditions: Any) -> bool:
        started = original(self, conditions)
        for batch in self.window if started else ():
            if batch.phase is Phase.COMPUTING:
                self._effects.issue(ReleaseBatch(ref=batch.ref))
        return started

    with replaced(Training, "_compute", compute):
        yield


@mutation("weights that may lack the push before them are discarded", protects=Protects.EXACTLY_ONCE)
def weights_without_the_push_are_discarded() -> Iterator[None]:
    with replaced(PushOutcome, "is_certainly_pulled", lambda self, request, sent_once: True):
        yield


@mutation(
    "weights are pulled after the pushes that the staleness does not allow to miss", protects=Protects.EXACTLY_ONCE
)
def pulls_wait_for_pushes() -> Iterator[None]:
    original = pipelining.to_pull

    def to_pull(window: Any, settings: Any, conditions: Any) -> Any:
        return original(window, PipelineSettings(staleness=1), conditions)

    with replaced(pipelining, "to_pull", to_pull):
        yield


@mutation(
    "a ps that dies before its first snapshot is offered the initial values again",
    protects=Protects.LIVENESS,
    scenario="a-ps-dies-before-its-first-snapshot",
)
def initial_values_are_offered_again() -> Iterator[None]:
    with replaced(connection, "wants_initial_values", lambda refusal: False):
        yield


@mutation("batches of a task that was repositioned are not processed", protects=Protects.EXACTLY_ONCE)
def void_batches_are_dropped() -> Iterator[None]:
    with replaced(Training, "_mark_void", lambda self: None):
        yield


@mutation(
    "a task that is complete when it is delivered is reported before it is acknowledged", protects=Protects.LIVENESS
)
def complete_tasks_are_reported() -> Iterator[None]:
    original = Training.begin

    def begin(self: Any, task: Any, progress: Any) -> None:
        if progress.next_batch == self._plan.batches_of(task.number):
            self._outcomes._acknowledge(self._leases.release(task))
        else:
            original(self, task, progress)

    with replaced(Training, "begin", begin):
        yield
