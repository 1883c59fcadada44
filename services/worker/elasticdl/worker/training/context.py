"""What the threads of a worker share."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.process.running_batches import RunningBatchesFile
from elasticdl.worker.ports import ParameterServers, Trainee
from elasticdl.worker.shutdown import Stop
from elasticdl.worker.training.leased_tasks import HeldTasks
from elasticdl.worker.training.leases import Leases
from elasticdl.worker.training.task_outcomes import Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """The two sides of the model, and what has to do with the tasks in hand.

    Attributes:
        model: computes ids, gradients, losses and metrics.
        ps: serves the model's weights and absorbs its gradients.
        held: the tasks in hand.
        leases: is told about progress.
        answers: answers deliveries.
        publisher: is told about deliveries.
        hand: where the batches are noted that user code works on.
        stop: ends everything after the batch in hand.
    """

    model: Trainee
    ps: ParameterServers
    held: HeldTasks
    leases: Leases
    answers: Answers
    publisher: EventPublisher
    hand: RunningBatchesFile
    stop: Stop
