"""Mutations of what tells a late event from a present one: a timer's due time, an export's dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.sim.mutations.registry import Protects, handled, mutation

from elasticdl.master.core import State
from elasticdl.master.core.evolve import HANDLERS
from elasticdl.shared.messages.events import Envelope, TaskFinished, TasksFinished, TimerFired
from elasticdl.shared.names import Purpose


@mutation("a timer that was set to another time since it fired continues", protects=Protects.EXACTLY_ONCE)
def timers_are_compared_by_due_time() -> Iterator[None]:
    original = HANDLERS[TimerFired]

    def on_timer_fired(state: State, envelope: Envelope, event: TimerFired) -> None:
        original(state, envelope, replace(event, due_s=state.timers.get(event.timer, event.due_s)))

    with handled(TimerFired, on_timer_fired):
        yield


@mutation(
    "an export of an earlier dispatch does not count",
    protects=Protects.EXACTLY_ONCE,
    scenario="an-export-is-reported-after-a-ps-has-died",
)
def exports_are_compared_by_dispatch() -> Iterator[None]:
    original = HANDLERS[TaskFinished]

    def on_task_finished(state: State, envelope: Envelope, event: TaskFinished) -> None:
        original(state, envelope, event)
        if event.task.purpose is Purpose.EXPORT and not event.task.number:
            state.closing.exported = True

    def on_tasks_finished(state: State, envelope: Envelope, event: TasksFinished) -> None:
        for finished in event.finished:
            on_task_finished(state, envelope, finished)

    with handled(TaskFinished, on_task_finished), handled(TasksFinished, on_tasks_finished):
        yield
