"""What the executors need from the rest: the parameter servers, the model and the user's feed, as small Protocols.

The adapters are ``elasticdl.worker.ps_client`` and ``elasticdl.worker.model``. The executors import neither TensorFlow
nor sockets, so tests run them without both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.metric_states import MetricArrays
from elasticdl.shared.names import TaskId
from elasticdl.worker.ps_client.requests import EpochMetrics, Pulled, PushOutcome, PushRequest, TaskProgress

Ids = npt.NDArray[np.int64]
Inverse = npt.NDArray[np.int32]
Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
TableRows = Mapping[str, tuple[Floats, Inverse]]
"""Table -> rows ``[unique, width]`` (views of a receive buffer), and the row of each id of the batch, ``[ids]``."""


class FedBatch(Protocol):
    """A batch as the model takes it."""

    @property
    def count(self) -> int:
        """Number of records that passed the user's feed."""
        ...


class Feeder(Protocol):
    """The user's feed function for one mode."""

    def feed(self, records: Any, seed: int = 0) -> FedBatch | None:
        """Tensors of one batch's raw records; None when all are filtered out. Equal seeds, equal random numbers."""
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
        """Flat, over the trainable variables, then the magnitudes of the gathered ones."""
        ...

    @property
    def statistics_update(self) -> Floats:
        """Flat, over the statistics."""
        ...

    @property
    def row_gradients(self) -> Mapping[str, Floats]:
        """Trainable table -> gradients of its unique rows."""
        ...

    @property
    def row_magnitudes(self) -> Mapping[str, tuple[Ids, Floats]]:
        """Trainable table -> places and magnitudes of the rows that the batch uses several times."""
        ...

    @property
    def metric_states(self) -> Doubles:
        """State variables of the training metrics after this batch alone; they add up."""
        ...

    @property
    def finite(self) -> bool:
        """Whether loss and gradients are."""
        ...

    @property
    def overflow(self) -> bool:
        """Mixed precision: the scaled gradients overflowed, so they are not pushed."""
        ...

    @property
    def problem(self) -> str:
        """What is not finite, with the name of its variable; empty if all is."""
        ...


class ParameterServers(Protocol):
    """The parameter servers. Calls block while a ps is unavailable."""

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        """How far a task is."""
        ...

    def read_metrics(self, epoch: int, skipped: tuple[int, ...] = ()) -> EpochMetrics:
        """The training metrics of an epoch; those of earlier epochs are forgotten. ``skipped`` tasks may be missing."""
        ...

    def pull(
        self, ids: Mapping[str, Ids], *, pin: int = 0, dense: bool = True, batch: tuple[int, int] | None = None
    ) -> Pulled:
        """The dense variables and these rows.

        Args:
            pin: as they were pinned for that evaluation; 0: as they are now.

        Raises:
            PinLostError: the pinned model is gone.
            PullDelayedError: the batch has to wait for other workers.
        """
        ...

    def push(self, request: PushRequest) -> PushOutcome:
        """Have a batch absorbed; returns once every group has answered."""
        ...

    def push_and_pull(
        self, request: PushRequest, ids: Mapping[str, Ids], batch: tuple[int, int]
    ) -> tuple[PushOutcome, Pulled | None, float]:
        """Push a batch and pull for the next one, ``batch``, in one round trip.

        Returns:
            The outcome of the push; what was pulled: None if it may lack the batch, or has to wait for others; and the
            seconds that the pull took longer than the push.
        """
        ...


class Reducer(Protocol):
    """Adds up values over all batches of a round."""

    def reduce(self, position: int, values: Doubles, *, backward: bool) -> Doubles:
        """The sum of what all batches of the round give at this place; blocks.

        Args:
            values: float64 (n,). With ``backward`` the gradient of this batch's loss by the sum.
            backward: also the result is what the sum of gradients means for this batch's loss.
        """
        ...


class Trainee(Protocol):
    """The model, as the lanes see it."""

    def ids(self, batch: Any, *, training: bool = True) -> Mapping[str, Ids]:
        """Table -> ids of the batch's records, repeated as they occur; may run beside ``train``."""
        ...

    def train(self, batch: Any, dense: Floats, rows: TableRows, *, step_seed: int) -> StepResult:
        """Loss, gradients and training metrics of one batch."""
        ...

    def evaluate(self, batch: Any, dense: Floats, rows: TableRows, *, step_seed: int) -> float:
        """Update the ``evaluate`` metrics with one batch; returns its mean loss."""
        ...

    def metric_states(self) -> MetricArrays:
        """The evaluation metrics, summed since the last reset."""
        ...

    def reset_metrics(self) -> None:
        """Begin new sums."""
        ...

    def split_states(self, states: Doubles) -> MetricArrays:
        """A sum of ``StepResult.metric_states`` by metric."""
        ...

    def rate(self, iteration: int) -> float:
        """The learning rate after a number of updates, where the schedule is the user's own."""
        ...

    def merge(self, states: MetricArrays) -> dict[str, float]:
        """Results of the summed states of many tasks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written for a batch.

    Attributes:
        values: arrays with one row for each record, in dicts, lists or tuples.
        classes: column -> name of the class of each record.
    """

    values: Any
    classes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)


class Predictive(Protocol):
    """The model, as a prediction job sees it."""

    @property
    def output_names(self) -> Sequence[str]:
        """Names of the outputs of a model that gives a list of them; empty if they have none."""
        ...

    def outputs(self, batch: Any, dense: Floats, rows: TableRows) -> Outputs:
        """What is written for a batch."""
        ...


class RoundTrainee(Protocol):
    """A model whose training step needs the other batches of its round. Steps may run side by side."""

    def train(
        self, batch: Any, dense: Floats, rows: TableRows, *, step_seed: int, reducer: Reducer | None = None
    ) -> StepResult:
        """Loss and gradients of one batch.

        Args:
            dense: the dense vector, which nothing else uses meanwhile.
            reducer: adds up over the round; None: the batch is alone, and its metrics are computed.
        """
        ...

    def measure(self, batch: Any, result: Any) -> StepResult:
        """The result of a step with a ``reducer``, with the metrics of its batch."""
        ...
