"""What becomes of a delivery: first the event that says so, then the answer to the queue.

The order matters. Were a task acknowledged first and this process killed before its event, nobody would know that the
task is finished; the other way round it is delivered once more and found complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.shared.job.plan import Shard
from elasticdl.shared.messages.events import TaskFailed, TaskFinished, TaskReturned
from elasticdl.shared.model.metric_states import encode_states
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.worker.failures import Failure
from elasticdl.worker.ports import Delivery
from elasticdl.worker.ps_client.requests import Absorbed
from elasticdl.worker.training.tallies import Tally

_NO_SHARD = Shard(source=0, start=0, end=0)


class Answers:
    """Answers deliveries. Several deliveries of one task share one event, that of the last of them.

    Args:
        publisher: the worker's events.
    """

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher

    def finish(
        self,
        deliveries: Sequence[Delivery],
        tally: Tally,
        *,
        absorbed: Absorbed | None = None,
        results: Mapping[str, float] | None = None,
    ) -> None:
        """The task is done.

        Args:
            deliveries: of one task.
            tally: what was counted on the way.
            absorbed: train: who absorbed it.
            results: merge: metric -> value.
        """
        for delivery in deliveries[-1:]:
            message = delivery.message
            event = TaskFinished(
                task=message.task,
                dispatch=message.dispatch,
                attempt=delivery.attempt,
                credits={str(ps): str(life) for ps, life in absorbed.credits.items()} if absorbed else {},
                placement_version=absorbed.placement_version if absorbed else 1,
                records=tally.records,
                batches=tally.batches,
                loss_sum=tally.loss_sum,
                states=encode_states(tally.states),
                results=dict(results or {}),
                seconds={**tally.seconds, "total": sum(tally.seconds.values())},
                counted=tuple(tally.counted.ranges()) if message.task.purpose is Purpose.TRAIN else (),
            )
            self._publisher.publish(event, cause=message.message_id)
        for delivery in deliveries:
            delivery.ack()

    def fail(
        self,
        deliveries: Sequence[Delivery],
        failure: Failure,
        *,
        source: str = "",
        shard: Shard = _NO_SHARD,
        batch: int = 0,
        step: int = 0,
    ) -> None:
        """The task can't be done: the user's code or the data; somebody else may try.

        Args:
            deliveries: of one task.
            failure: why.
            source: URI of the data object; empty for tasks without data.
            shard: the task's records in it.
            batch: which batch of it failed.
            step: the ps' step, if the model had to do with it.
        """
        for delivery in deliveries[-1:]:
            message = delivery.message
            event = TaskFailed(
                task=message.task,
                dispatch=message.dispatch,
                attempt=delivery.attempt,
                kind=failure.kind,
                message=failure.message,
                traceback=failure.traceback,
                batch=batch,
                source=source,
                first_record=shard.start,
                last_record=shard.end,
                step=step,
            )
            self._publisher.publish(event, cause=message.message_id)
        for delivery in deliveries:
            delivery.nak()

    def drop(self, deliveries: Sequence[Delivery], reason: str) -> None:
        """The task is nobody's any more: say so, and take it off the queue."""
        for delivery in deliveries:
            self._say_returned(delivery, reason, Tally())
            delivery.ack()

    def give_back(self, deliveries: Sequence[Delivery], reason: str, tally: Tally | None = None) -> None:
        """Return tasks unfinished, on purpose.

        Args:
            deliveries: of several tasks perhaps; of one train task if there is a tally.
            reason: why.
            tally: what was counted of that task.
        """
        for delivery in deliveries:
            self._say_returned(delivery, reason, tally or Tally())
            delivery.nak()

    def _say_returned(self, delivery: Delivery, reason: str, tally: Tally) -> None:
        message = delivery.message
        event = TaskReturned(
            task=message.task,
            dispatch=message.dispatch,
            attempt=delivery.attempt,
            reason=reason,
            records=tally.records,
            loss_sum=tally.loss_sum,
            states=encode_states(tally.states),
            counted=tuple(tally.counted.ranges()),
        )
        self._publisher.publish(event, cause=message.message_id)
