"""What happens to the deliveries of a task at its end: first the event is stored, then the queue gets its answer.

The order matters. If a task were acknowledged first and the process killed before its event is stored, the master would
never learn that the task is finished. The other way round the task is delivered once more and found complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.plan import Plan, Shard
from elasticdl.shared.job.tasks import (
    MetricStates,
    TaskMessage,
    are_large,
    states_of_evaluation,
)
from elasticdl.shared.messages.events import TaskFailed, TaskFinished, TaskReturned, TasksFinished
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.process.core_runner import SetTimer
from elasticdl.shared.process.procedures import Procedure
from elasticdl.worker.core.commands import AckTask, CollectMetrics, NakTask, PublishEvent, StoreStates
from elasticdl.worker.core.effects import Effects
from elasticdl.worker.core.tally import Tally
from elasticdl.worker.core.tasks.leased import LeasedTask, LeasedTasks
from elasticdl.worker.failures import Failure
from elasticdl.worker.ps_client.requests import Absorbed

RESUME_TIMER = "resume taking tasks"
REPORT_TIMER = "report finished tasks"
BATCHES_MAX = 16
"""Batches of the tasks that are reported together."""
DELAY_S = 0.25
"""Seconds by which the report of a task is delayed at most."""
_NO_SHARD = Shard(source=0, start=0, end=0)
_NO_STATES: MetricStates = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedBatch:
    """Which records failed.

    Attributes:
        source: URI of the data object; empty for tasks without data, or with data of several ranges.
        shard: the task's records in it.
    """

    source: str = ""
    shard: Shard = _NO_SHARD
    batch: int = 0
    step: int = 0

    @classmethod
    def of(cls, plan: Plan, task: TaskId, batch: int, step: int = 0) -> FailedBatch:
        """A batch of a plan's task."""
        shard, *others = plan.shards(task)
        if others:
            return cls(batch=batch, step=step)
        return cls(source=plan.sources[shard.source].uri, shard=shard, batch=batch, step=step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A task that is done.

    Attributes:
        leases: its deliveries, at least one.
        absorbed: of a train task: which ps absorbed it.
        file: of a prediction task: name of its file.
        note: of a merge task that runs callbacks: why they ask for something.
        stored_states: of a merge task that sums stored metric states: the numbers of the sum's parts.
    """

    leases: Sequence[LeasedTask]
    tally: Tally
    absorbed: Absorbed | None = None
    results: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    file: str = ""
    note: str = ""
    stored_states: tuple[int, ...] = ()

    def event(
        self, now_s: float, states: MetricStates = _NO_STATES, stored_states: tuple[int, ...] = ()
    ) -> TaskFinished:
        """Its record; of an evaluation task with its metric states, or the numbers of their parts.

        ``now_s``: monotonic time.
        """
        last, tally, absorbed = self.leases[-1], self.tally, self.absorbed
        task = last.message.task
        return TaskFinished(
            task=task,
            dispatch=last.message.dispatch,
            attempt=last.attempt,
            absorbed_by=ps_set_digest(absorbed.credits) if absorbed else 0,
            placement_version=absorbed.placement_version if absorbed else 1,
            records=tally.records,
            batches=tally.batches,
            loss_sum=tally.loss_sum,
            states=states,
            stored_states=stored_states or self.stored_states,
            results=dict(self.results),
            times=Times.of(tally.seconds),
            counted=tuple(tally.counted.ranges()) if task.purpose is Purpose.TRAIN else (),
            staleness=tally.staleness,
            overflows=tally.overflows,
            checksum=tally.checksum,
            file=self.file,
            note=self.note,
            sampled=tally.sample.times(now_s) if tally.sample else None,
        )


class TaskOutcomes:
    """Procedures that end tasks. Several deliveries of one task share one event, that of the last delivery.

    Args:
        failure_pause_s: seconds without taking tasks after a failed one.
    """

    def __init__(self, effects: Effects, *, failure_pause_s: float) -> None:
        self.resume_taking_s = -math.inf
        """Time before which no task is taken."""
        self._effects = effects
        self._failure_pause_s = failure_pause_s
        self.running = 0
        """Outcomes whose event is not acknowledged yet; the worker stops after them."""

    def finish(self, finished: Finished) -> Procedure[None]:
        """The task is done; without effect if it has no deliveries any more."""
        if finished.leases:
            yield from self.report([finished])

    def report(self, finished: Sequence[Finished]) -> Procedure[None]:
        """Report tasks that are done; several only if they are train tasks."""
        self.running += 1
        message = finished[0].leases[-1].message
        if message.task.purpose is Purpose.EVALUATE and finished[0].tally.batches:
            states, stored = yield from self._collect(message)
            reports = [finished[0].event(self._effects.now_s, states, stored)]
        else:
            reports = [one.event(self._effects.now_s) for one in finished]
        yield PublishEvent(event=TasksFinished(finished=tuple(reports)) if len(reports) > 1 else reports[0])
        for one in finished:
            self._acknowledge(one.leases)
        self.running -= 1

    def fail(self, leases: Sequence[LeasedTask], failure: Failure, where: FailedBatch | None = None) -> Procedure[None]:
        """The data or the user's code is wrong; another worker may try."""
        where = where or FailedBatch()
        self.running += 1
        for last in leases[-1:]:
            yield PublishEvent(
                event=TaskFailed(
                    task=last.message.task,
                    dispatch=last.message.dispatch,
                    attempt=last.attempt,
                    kind=failure.kind,
                    message=failure.message,
                    traceback=failure.traceback,
                    batch=where.batch,
                    source=where.source,
                    first_record=where.shard.start,
                    last_record=where.shard.end,
                    step=where.step,
                ),
            )
        self._return(leases)
        self.running -= 1

    def drop(self, leases: Sequence[LeasedTask], reason: str, tally: Tally | None = None) -> Procedure[None]:
        """Report that the task can't be done as it is, or not now, and take it off the queue."""
        self.running += 1
        for lease in leases:
            yield self._returned(lease, reason, tally or Tally(), is_dropped=True)
        self._acknowledge(leases)
        self.running -= 1

    def give_back(self, leases: Sequence[LeasedTask], reason: str, tally: Tally | None = None) -> Procedure[None]:
        """Return a task unfinished."""
        if not leases:
            return
        self.running += 1
        for lease in leases:
            yield self._returned(lease, reason, tally or Tally())
        self._return(leases)
        self.running -= 1

    def pause(self) -> None:
        """Take no tasks for a while: the one that has just failed may come straight back."""
        self.resume_taking_s = self._effects.now_s + self._failure_pause_s
        self._effects.issue(SetTimer(name=RESUME_TIMER, due_s=self.resume_taking_s))

    def _collect(self, message: TaskMessage) -> Procedure[tuple[MetricStates, tuple[int, ...]]]:
        """The metric states of an evaluation task, or the numbers of their parts if they are too large for an event."""
        states: MetricStates = yield CollectMetrics(task=message.task)
        if not are_large(states):
            return states, ()
        stored: tuple[int, ...] = yield StoreStates(group=states_of_evaluation(message.evaluation), states=states)
        return {}, stored

    def _returned(self, lease: LeasedTask, reason: str, tally: Tally, *, is_dropped: bool = False) -> PublishEvent:
        event = TaskReturned(
            task=lease.message.task,
            dispatch=lease.message.dispatch,
            attempt=lease.attempt,
            reason=reason,
            records=tally.records,
            loss_sum=tally.loss_sum,
            counted=tuple(tally.counted.ranges()),
            staleness=tally.staleness,
            overflows=tally.overflows,
            is_dropped=is_dropped,
        )
        return PublishEvent(event=event)

    def _acknowledge(self, leases: Sequence[LeasedTask]) -> None:
        for lease in leases:
            self._effects.issue(AckTask(lease=lease))

    def _return(self, leases: Sequence[LeasedTask]) -> None:
        for lease in leases:
            self._effects.issue(NakTask(lease=lease))


class FinishedTasks:
    """Train tasks that are finished and not reported yet, all of one epoch.

    Short tasks that are finished within a moment are reported together, in one record. A later report costs nothing:
    the queue holds enough others. If the worker is killed first, the task is delivered again and found complete.
    """

    def __init__(self, plan: Plan, effects: Effects, leases: LeasedTasks, outcomes: TaskOutcomes) -> None:
        self._plan = plan
        self._effects = effects
        self._leases = leases
        self._outcomes = outcomes
        self._epoch = 0
        self._batches = 0
        self._finished: list[Finished] = []

    def add(self, finished: Finished) -> None:
        """Report a task, at once or soon."""
        task = TaskId(finished.leases[-1].message.task.number)
        batches, epoch = self._plan.batches_of(task), self._plan.epoch(task)
        if epoch != self._epoch:
            self.report()
        if not self._finished:
            self._epoch = epoch
            self._effects.issue(SetTimer(name=REPORT_TIMER, due_s=self._effects.now_s + DELAY_S))
        self._finished.append(finished)
        self._batches += batches
        if self._batches >= BATCHES_MAX or not self._has_more(epoch):
            self.report()

    def report(self) -> None:
        """Report the tasks now."""
        if self._finished:
            finished, self._finished, self._batches = self._finished, [], 0
            self._effects.start(self._outcomes.report(finished))

    def _has_more(self, epoch: int) -> bool:
        """Whether a task of the epoch is in progress. If not, the master may be waiting for the end of the epoch."""
        tasks = self._leases.tasks
        return any(task.purpose is Purpose.TRAIN and self._plan.epoch(TaskId(task.number)) == epoch for task in tasks)
