"""What the threads of a worker share."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.in_hand import InHandFile
from elasticdl.shared.journal import Journal
from elasticdl.worker.answers import Answers
from elasticdl.worker.held import HeldTasks
from elasticdl.worker.leases import Leases
from elasticdl.worker.ports import ParameterServers, Trainee
from elasticdl.worker.stop import Stop


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkContext:
    """The two sides of the model, and what has to do with the tasks in hand.

    Attributes:
        model: computes ids, gradients, losses and metrics.
        ps: serves the model's weights and absorbs its gradients.
        held: the tasks in hand.
        leases: is told about progress.
        answers: answers deliveries.
        journal: is told about deliveries.
        hand: where the batches are noted that user code works on.
        stop: ends everything after the batch in hand.
    """

    model: Trainee
    ps: ParameterServers
    held: HeldTasks
    leases: Leases
    answers: Answers
    journal: Journal
    hand: InHandFile
    stop: Stop
