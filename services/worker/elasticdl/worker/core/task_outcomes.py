"""What happens to the deliveries of a task at its end: first the event is stored, then the queue gets its answer.

The order matters. If a task were acknowledged first and the process killed before its event is stored, the master would
never learn that the task is finished. The other way round the task is delivered once more and found complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.plan import Plan, Shard
from elasticdl.shared.job.tasks import MetricStates
from elasticdl.shared.messages.events import TaskFailed, TaskFinished, TaskReturned
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.shared.process.core_runner import SetTimer
from elasticdl.shared.process.procedures import Procedure
from elasticdl.worker.core.commands import AckTask, CollectMetrics, NakTask, PublishEvent
from elasticdl.worker.core.effects import Effects
from elasticdl.worker.core.leased_tasks import LeasedTask
from elasticdl.worker.core.tally import Tally
from elasticdl.worker.failures import Failure
from elasticdl.worker.ps_client.requests import Absorbed

RESUME_TIMER = "resume taking tasks"
_NO_SHARD = Shard(source=0, start=0, end=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedBatch:
    """Which records failed.

    Attributes:
        source: URI of the data object; empty for tasks without data.
        shard: the task's records in it.
        batch: number of the batch in the task.
        step: step of the weights, if the batch was computed with weights.
    """

    source: str = ""
    shard: Shard = _NO_SHARD
    batch: int = 0
    step: int = 0

    @classmethod
    def of(cls, plan: Plan, task: TaskId, batch: int, step: int = 0) -> FailedBatch:
        """A batch of a plan's task."""
        shard = plan.shard(task)
        return cls(source=plan.sources[shard.source].uri, shard=shard, batch=batch, step=step)


class TaskOutcomes:
    """Procedures that end tasks. Several deliveries of one task share one event, that of the last delivery.

    Args:
        effects: where commands are issued.
        failure_pause_s: seconds without taking tasks after a failed one.
    """

    def __init__(self, effects: Effects, *, failure_pause_s: float) -> None:
        self.resume_taking_s = -math.inf
        """Time before which no task is taken."""
        self._effects = effects
        self._failure_pause_s = failure_pause_s
        self.running = 0
        """Outcomes whose event is not acknowledged yet; the worker stops after them."""

    def finish(
        self,
        leases: Sequence[LeasedTask],
        tally: Tally,
        *,
        absorbed: Absorbed | None = None,
        results: Mapping[str, float] | None = None,
    ) -> Procedure[None]:
        """The task is done.

        Args:
            leases: of one task.
            tally: what was counted.
            absorbed: of a train task: which ps absorbed it.
            results: of a merge task: metric -> value.
        """
        if not leases:
            return
        self.running += 1
        task, last = leases[-1].message.task, leases[-1]
        states: MetricStates = (yield CollectMetrics(task=task)) if tally.batches else {}
        yield PublishEvent(
            event=TaskFinished(
                task=task,
                dispatch=last.message.dispatch,
                attempt=last.attempt,
                absorbed_by=ps_set_digest(absorbed.credits) if absorbed else 0,
                placement_version=absorbed.placement_version if absorbed else 1,
                records=tally.records,
                batches=tally.batches,
                loss_sum=tally.loss_sum,
                states=states,
                results=dict(results or {}),
                times=Times.of(tally.seconds),
                counted=tuple(tally.counted.ranges()) if task.purpose is Purpose.TRAIN else (),
                staleness=tally.staleness,
                overflows=tally.overflows,
            ),
        )
        self._acknowledge(leases)
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

    def drop(self, leases: Sequence[LeasedTask], reason: str) -> Procedure[None]:
        """The task has no purpose any more: say so, and take it off the queue."""
        self.running += 1
        for lease in leases:
            yield self._returned(lease, reason, Tally(), {})
        self._acknowledge(leases)
        self.running -= 1

    def give_back(
        self, leases: Sequence[LeasedTask], reason: str, tally: Tally | None = None, *, measured: bool = False
    ) -> Procedure[None]:
        """Return a task unfinished.

        Args:
            leases: of one task.
            reason: why.
            tally: what was counted.
            measured: whether the model's metrics can be collected; they can't be while a step hangs.
        """
        if not leases:
            return
        self.running += 1
        collects = measured and tally is not None and tally.batches > 0
        states: MetricStates = (yield CollectMetrics(task=leases[0].message.task)) if collects else {}
        for lease in leases:
            yield self._returned(lease, reason, tally or Tally(), states)
        self._return(leases)
        self.running -= 1

    def pause(self) -> None:
        """Take no tasks for a while: the one that has just failed may come straight back."""
        self.resume_taking_s = self._effects.now_s + self._failure_pause_s
        self._effects.issue(SetTimer(name=RESUME_TIMER, due_s=self.resume_taking_s))

    def _returned(self, lease: LeasedTask, reason: str, tally: Tally, states: MetricStates) -> PublishEvent:
        event = TaskReturned(
            task=lease.message.task,
            dispatch=lease.message.dispatch,
            attempt=lease.attempt,
            reason=reason,
            records=tally.records,
            loss_sum=tally.loss_sum,
            states=states,
            counted=tuple(tally.counted.ranges()),
            staleness=tally.staleness,
            overflows=tally.overflows,
        )
        return PublishEvent(event=event)

    def _acknowledge(self, leases: Sequence[LeasedTask]) -> None:
        for lease in leases:
            self._effects.issue(AckTask(lease=lease))

    def _return(self, leases: Sequence[LeasedTask]) -> None:
        for lease in leases:
            self._effects.issue(NakTask(lease=lease))
