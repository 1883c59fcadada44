"""What the worker's loop needs from the rest: the queue, the ps set and the model, each as a small Protocol.

The adapters are ``inbox.py`` over ``elasticdl.shared.bus``, ``elasticdl.worker.ps_client`` and
``elasticdl.worker.model``; the loop itself imports none of them: tests run it without broker, sockets or TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.model.metric_states import MetricArrays
from elasticdl.shared.names import TaskId
from elasticdl.worker.ps_client.requests import Pulled, PushOutcome, PushRequest, TaskProgress

Ids = npt.NDArray[np.int64]
Inverse = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
TableRows = Mapping[str, tuple[Floats, Inverse]]
"""Table -> rows ``[unique, width]`` (views of a receive buffer), and the row of each id of the batch, ``[ids]``."""


class Delivery(Protocol):
    """A task in hand, to be answered once."""

    @property
    def message(self) -> TaskMessage:
        """The task."""
        ...

    @property
    def attempt(self) -> int:
        """Which delivery of this message it is, from 1."""
        ...

    @property
    def reply(self) -> str:
        """Where anybody may give the delivery back."""
        ...

    def ack(self) -> None:
        """The task is done; returns once the broker has confirmed it."""
        ...

    def nak(self) -> None:
        """Have it delivered again at once."""
        ...

    def extend(self) -> None:
        """Keep it for another lease."""
        ...


class Tasks(Protocol):
    """The job's queue of tasks."""

    def take(self, wait_s: float) -> Delivery | None:
        """The next task, waiting at most ``wait_s`` for one."""
        ...


class FedBatch(Protocol):
    """A batch as the model takes it."""

    @property
    def count(self) -> int:
        """Number of records that passed the user's feed."""
        ...


class Feeder(Protocol):
    """The user's feed function for one mode."""

    def feed(self, records: Any) -> FedBatch | None:
        """Tensors of one batch's raw records; None when all of them are filtered out."""
        ...

    @property
    def is_compiled(self) -> bool:
        """Whether the user's function could be compiled; an error before that is about no record."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIds:
    """The rows of one table that a batch needs.

    Attributes:
        unique: distinct ids, shape ``[rows]``.
        inverse: position in ``unique`` of each id of the batch, shape ``[ids]``.
    """

    unique: Ids
    inverse: Inverse


class StepResult(Protocol):
    """What one training step computed."""

    @property
    def loss(self) -> float:
        """Mean loss of the batch."""
        ...

    @property
    def dense_gradient(self) -> Floats:
        """Flat, over the trainable variables."""
        ...

    @property
    def statistics_delta(self) -> Floats:
        """Flat, over the statistics."""
        ...

    @property
    def row_gradients(self) -> Mapping[str, Floats]:
        """Trainable table -> gradients of its unique rows."""
        ...

    @property
    def finite(self) -> bool:
        """Whether loss and gradients are."""
        ...

    @property
    def overflow(self) -> bool:
        """Mixed precision: the scaled gradients overflowed; there is nothing to push."""
        ...


class ParameterServers(Protocol):
    """The ps set, as the loop uses it. Calls block while a ps is away."""

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        """Where a task stands."""
        ...

    def pull(self, ids: Mapping[str, Ids], *, pin: int = 0) -> Pulled:
        """The dense variables and these rows; ``pin``: as they were pinned for that evaluation (0: as they are now).

        Raises:
            PinLostError: nobody has that pin any more.
        """
        ...

    def push(self, request: PushRequest) -> PushOutcome:
        """Have a batch absorbed; returns once every group has answered."""
        ...


class Trainee(Protocol):
    """The model, as the worker's loop sees it."""

    def ids(self, batch: Any, *, training: bool = True) -> Mapping[str, Ids]:
        """Table -> ids of the batch's records, repeated as they occur; may run beside ``train``."""
        ...

    def train(self, batch: Any, dense: Floats, rows: TableRows, *, step_seed: int) -> StepResult:
        """Loss and gradients of one batch; the ``train`` metrics are updated."""
        ...

    def evaluate(self, batch: Any, dense: Floats, rows: TableRows) -> float:
        """Update the ``evaluate`` metrics with one batch; returns its mean loss."""
        ...

    def metric_states(self, purpose: str = "evaluate") -> MetricArrays:
        """The ``train`` or ``evaluate`` metrics summed since the last reset."""
        ...

    def reset_metrics(self, purpose: str = "evaluate") -> None:
        """Begin new sums."""
        ...

    def rate(self, iteration: int) -> float:
        """The learning rate after so many updates, where the schedule is the user's own."""
        ...

    def merge(self, states: list[MetricArrays]) -> dict[str, float]:
        """Results of the summed states of many tasks."""
        ...


class Asides(Protocol):
    """Tasks of other purposes than training."""

    def run(self, delivery: Delivery) -> None:
        """Do the task and answer its delivery."""
        ...
