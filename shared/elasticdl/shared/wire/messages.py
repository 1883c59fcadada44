"""What workers and ps say to each other, as frozen values; ``message_codec`` turns them into frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Annotated

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.proto.fields import Pair, Separate, Uint64

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
TaskBatch = Annotated[tuple[int, int], Pair("TaskBatch", "task", "batch")]
"""A task and one of its batches."""

NO_DOUBLES: Doubles = np.empty(0, np.float64)
NO_FLOATS: Floats = np.empty(0, np.float32)
NO_IDS: Ids = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIds:
    """Unique ids of one table (int64[n]); ``table`` is its position in the signature."""

    table: int
    width: int
    ids: Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGradients:
    """Row gradients (float32[n, width]) of unique ids (int64[n]) of one table."""

    table: int
    ids: Ids
    gradients: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Initialise:
    """The model's signature and a part's initial dense values.

    Attributes:
        plan: the plan's fingerprint.
        placement_version: version of the placement that the values were split by.
        dense: float32, the part's range of the flat variables.
    """

    plan: str
    placement_version: Uint64
    signature: str
    dense: Separate[Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBatch:
    """Where does this task stand?"""

    plan: str
    placement_version: Uint64
    task: Uint64
    batches: Uint64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Rows and dense variables are wanted.

    Attributes:
        pin: the evaluation whose pinned state is read; 0: the present state.
        dense: whether dense variables are wanted.
        batch: task and batch that is computed from the answer; None: no batch of training.
        averages: whether the averages of trainable dense variables are wanted in place of their values, if the
            optimizer keeps averages.
        updates_ahead: answer with the dense weights that are expected after this many more updates. The gate counts
            them itself.
    """

    plan: str
    placement_version: Uint64
    pin: Uint64
    dense: bool
    tables: Separate[tuple[TableIds, ...]]
    batch: TaskBatch | None = None
    averages: bool = False
    updates_ahead: Uint64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One batch as one ps gets it.

    Attributes:
        records: records of the batch, as read.
        checksum: sum of their hashes modulo 2**64.
        base_iteration: ``PullReply.iteration`` of the state that the gradients were computed from.
        rate: the learning rate, if the worker evaluates the schedule.
        empty: there is no gradient, so no update; ``statistics`` count all the same.
        dense: float32, gradient of the part's trainable variables, then the magnitudes of its gathered ones.
        magnitudes: of ids that the batch has several times, in the order of ``tables``: sums over their uses of the
            gradient's ``Optimizer.power``. Of other ids the gradient says it.
        statistics: float32, what the batch contributes to the part's layer state, see ``StateUpdate``; may be empty.
        metric_states: float64, state variables of the training metrics after this batch alone; empty: it has none, or
            another ps adds them up.
    """

    plan: str
    placement_version: Uint64
    task: Uint64
    batch: Uint64
    batches: Uint64
    records: Uint64
    checksum: Uint64
    base_iteration: Uint64 = 0
    rate: float | None = None
    empty: bool = False
    dense: Separate[Floats]
    statistics: Separate[Floats]
    tables: Separate[tuple[TableGradients, ...]]
    magnitudes: Separate[tuple[TableGradients, ...]] = ()
    metric_states: Separate[Doubles] = field(default_factory=lambda: NO_DOUBLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What one batch contributes to a sum over all batches of its round. The gate adds them up.

    Attributes:
        weights: identifies the weights that the batch is computed from; equal in all batches of a round.
        position: which sum of the training step.
        backward: the sum of gradients at this position, not of values.
        absent: the batch has no records, so it contributes to no sum of this round.
        values: float64; empty where ``absent``.
    """

    plan: str
    placement_version: Uint64
    task: Uint64
    batch: Uint64
    weights: str
    position: Uint64 = 0
    backward: bool = False
    absent: bool = False
    values: Separate[Doubles]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMetrics:
    """The sum of the metric states of an epoch, from 0, is wanted; earlier epochs are not needed any more.

    ``skipped``: tasks of the epoch that need not be absorbed.
    """

    plan: str
    placement_version: Uint64
    epoch: Uint64
    skipped: tuple[Uint64, ...] = ()


Request = Initialise | NextBatch | Pull | Push | Exchange | ReadMetrics


class RefusalKind(Enum):
    """Why a request was refused; nothing was changed."""

    NOT_READY = auto()
    MOVED = auto()
    USER = auto()
    PROTOCOL = auto()
    NO_PIN = auto()
    NOT_INITIALISED = auto()
    PULL_DELAYED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that changed nothing."""

    kind: RefusalKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialiseReply:
    """The model is there; ``first``: by this request."""

    first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBatchReply:
    """The next batch that some group of the ps wants of a task; the number of its batches once it is finished."""

    next_batch: Uint64


@dataclass(frozen=True, slots=True, kw_only=True)
class PullReply:
    """What a pull brought.

    Attributes:
        iteration: optimizer updates up to this state.
        step: batches absorbed up to this state.
        dense: float32, the part's range of the flat variables; empty if not wanted.
        rows: float32, rows of the request's tables one after another.
        updates_ahead: updates after which ``dense`` is expected to be the state; 0: it is the state.
    """

    iteration: Uint64
    step: Uint64
    dense: Separate[Floats]
    rows: Separate[Floats]
    updates_ahead: Uint64 = 0


class PushVerdict(Enum):
    """What became of a push."""

    APPLIED = auto()
    DUPLICATE = auto()
    GAP = auto()
    NOT_FINITE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReply:
    """The answer to a push.

    Attributes:
        next_batch: the first batch of the task that some group of the ps wants.
        step: the most batches absorbed by a group.
        message: NOT_FINITE: where.
        staleness: optimizer updates between the batch's pull and its absorption; None: no gradient was absorbed.
    """

    verdict: PushVerdict
    next_batch: Uint64
    step: Uint64
    message: str = ""
    staleness: Uint64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeReply:
    """The answer to a contribution.

    Attributes:
        generation: changes when the ps has forgotten the contributions to a round.
        missing: tasks whose batches have not contributed yet.
        values: float64, the sum; empty while batches are missing.
    """

    generation: Uint64
    missing: tuple[Uint64, ...] = ()
    values: Separate[Doubles]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReply:
    """The sum of the metric states of an epoch.

    Attributes:
        complete: whether every batch of the epoch has been absorbed; False: also if another ps has the sum.
        batches: how many batches are in it.
        states: float64, the sum; empty if no batch had states.
    """

    complete: bool = False
    batches: Uint64 = 0
    records: Uint64 = 0
    states: Separate[Doubles] = field(default_factory=lambda: NO_DOUBLES)


Reply = Refusal | InitialiseReply | NextBatchReply | PullReply | PushReply | ExchangeReply | MetricsReply


def split_rows(flat: Floats, tables: Sequence[TableIds]) -> list[Floats]:
    """Views float32[n, width] of each table's rows of a pull. Raises ``ProtocolError`` if the lengths don't agree."""
    views, start = [], 0
    for table in tables:
        rows, width = table.ids.size, table.width
        end = start + rows * width
        if end > flat.size:
            break
        views.append(flat[start:end].reshape(rows, width))
        start = end
    if start != flat.size or len(views) != len(tables):
        raise ProtocolError(f"{flat.size} floats came for the rows of {len(tables)} tables: the lengths differ")
    return views
