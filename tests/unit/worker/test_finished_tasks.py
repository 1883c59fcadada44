"""When the tasks that a worker has finished are reported."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import TaskFinished, one_by_one
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.core_runner import SetTimer
from elasticdl.shared.process.procedures import Issued
from elasticdl.worker.core import commands
from elasticdl.worker.core.effects import Effects
from elasticdl.worker.core.tally import Tally
from elasticdl.worker.core.tasks.leased import LeasedTask, LeasedTasks
from elasticdl.worker.core.tasks.outcomes import (
    BATCHES_MAX,
    DELAY_S,
    REPORT_TIMER,
    Finished,
    FinishedTasks,
    TaskOutcomes,
)

PLAN = Plan(
    sources=(Source(uri="memory://data", size_bytes=40, etag="1", records=40),),
    minibatch_size=1,
    minibatches_per_task=1,
    epochs=2,
    shuffle=Shuffle.NONE,
    seed=1,
)


class Reports:
    """Finished tasks whose events are stored at once."""

    def __init__(self, plan: Plan = PLAN) -> None:
        self.plan = plan
        self.effects = Effects()
        self.leases = LeasedTasks(lease_s=10.0, deadline_s=300.0)
        self.outcomes = TaskOutcomes(self.effects, failure_pause_s=0.5)
        self.finished = FinishedTasks(plan, self.effects, self.leases, self.outcomes)
        self.groups: list[list[TaskFinished]] = []
        self.acknowledged: list[int] = []
        self.due_s: list[float] = []

    def lease(self, number: int) -> LeasedTask:
        message = TaskMessage(task=TaskRef(purpose=Purpose.TRAIN, number=number), dispatch=1, term=1)
        lease = LeasedTask(number=number + 1, message=message, attempt=1)
        self.leases.add(lease, 0.0)
        return lease

    def finish(self, lease: LeasedTask, *, batches: int = 1) -> None:
        tally = Tally()
        for batch in range(batches):
            tally.add_batch(batch, records=1, loss=0.5)
        self.leases.release(lease.message.task)
        self.finished.add(Finished(leases=[lease], tally=tally))
        self.execute()

    def execute(self) -> None:
        while issued := self.effects.drain():
            for command in issued:
                match command:
                    case SetTimer(name=name, due_s=due_s):
                        assert name == REPORT_TIMER
                        self.due_s.append(due_s)
                    case commands.AckTask(lease=lease):
                        self.acknowledged.append(lease.message.task.number)
                    case Issued(number=number, command=commands.PublishEvent(event=event)):
                        self.groups.append([one for one in one_by_one(event) if isinstance(one, TaskFinished)])
                        self.effects.done(number, None)
                    case _:
                        raise AssertionError(command)


def numbers(groups: list[list[TaskFinished]]) -> list[list[int]]:
    return [[event.task.number for event in group] for group in groups]


def test_short_tasks_are_reported_together() -> None:
    reports = Reports()
    leases = [reports.lease(number) for number in range(BATCHES_MAX + 1)]
    for lease in leases[:BATCHES_MAX]:
        assert reports.groups == []
        assert reports.acknowledged == []
        reports.finish(lease)
    (group,) = reports.groups
    assert [event.task.number for event in group] == list(range(BATCHES_MAX))
    assert reports.acknowledged == list(range(BATCHES_MAX))
    assert reports.due_s == [DELAY_S]


def test_a_task_with_nothing_after_it_is_reported_at_once() -> None:
    reports = Reports()
    reports.finish(reports.lease(0))
    assert numbers(reports.groups) == [[0]]


def test_the_last_tasks_of_an_epoch_do_not_wait_for_the_next_epoch() -> None:
    reports = Reports()
    last, following = reports.lease(PLAN.tasks_per_epoch - 1), reports.lease(PLAN.tasks_per_epoch)
    reports.lease(PLAN.tasks_per_epoch + 1)
    reports.finish(last)
    assert numbers(reports.groups) == [[PLAN.tasks_per_epoch - 1]]
    reports.finish(following)
    assert len(reports.groups) == 1


def test_tasks_of_two_epochs_are_never_reported_together() -> None:
    reports = Reports()
    first, _, other = reports.lease(0), reports.lease(1), reports.lease(PLAN.tasks_per_epoch)
    reports.finish(first)
    assert reports.groups == []
    reports.finish(other)
    assert numbers(reports.groups) == [[0], [PLAN.tasks_per_epoch]]


def test_a_long_task_is_reported_at_once() -> None:
    reports = Reports(replace(PLAN, minibatches_per_task=BATCHES_MAX))
    first, _ = reports.lease(0), reports.lease(1)
    reports.finish(first, batches=BATCHES_MAX)
    assert numbers(reports.groups) == [[0]]


def test_a_task_of_which_others_have_computed_a_part_is_reported_with_the_others() -> None:
    reports = Reports(replace(PLAN, minibatches_per_task=2))
    whole, part, nothing, _ = (reports.lease(number) for number in range(4))
    reports.finish(whole, batches=2)
    reports.finish(part, batches=1)
    reports.finish(nothing, batches=0)
    reports.finished.report()
    reports.execute()
    assert numbers(reports.groups) == [[0, 1, 2]]
    assert [event.batches for event in reports.groups[0]] == [2, 1, 0]
