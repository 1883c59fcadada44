"""Requests of a worker to all ps, and what the answers of all ps mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from elasticdl.shared.errors import TransientError
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire.messages import (
    NO_DOUBLES,
    NO_FLOATS,
    Doubles,
    Floats,
    Ids,
    NextBatchReply,
    PushReply,
    PushVerdict,
)

Rows = tuple[Ids, Floats]
"""Unique ids int64[n] and their float32[n, width]."""
Instances = Mapping[str, str]
"""Ps -> its instance."""
NO_INSTANCES: Instances = MappingProxyType({})
BatchReply = PushReply | NextBatchReply
"""The reply of a ps that got the batch, or of one that had it already and was asked only for its progress."""


class PinLostError(TransientError):
    """The model that is to be read, pinned or audited, is gone: a ps restarted or the pin was closed."""


class PullDelayedError(TransientError):
    """The weights for the batch are not to be pulled yet; ask again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushRequest:
    """One batch's gradients.

    Attributes:
        base_iterations: ``Pulled.iterations`` of the state that the gradients were computed from.
        rate: the learning rate, if the schedule is the user's own; None: the ps evaluates the schedule.
        dense_gradient: float32, flat over the trainable variables in the signature's order, then the magnitudes of the
            gathered ones; None: an empty push.
        statistics_update: float32, flat over the statistics in the signature's order: the ``x`` of their
            ``StateUpdate``; empty: unchanged.
        rows: by table name; unique ids and their summed gradients.
        magnitudes: by table name; see ``messages.Push``.
        metric_states: float64, state variables of the training metrics after this batch alone; empty: it has none.
    """

    task: TaskId
    batch: int
    batches: int
    records: int
    checksum: int
    base_iterations: Mapping[PodName, int] = field(default_factory=lambda: MappingProxyType({}))
    rate: float | None = None
    dense_gradient: Floats | None
    statistics_update: Floats = field(default_factory=lambda: NO_FLOATS)
    rows: Mapping[str, Rows] = field(default_factory=lambda: MappingProxyType({}))
    magnitudes: Mapping[str, Rows] = field(default_factory=lambda: MappingProxyType({}))
    metric_states: Doubles = field(default_factory=lambda: NO_DOUBLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochMetrics:
    """The training metrics of an epoch, as sums over the batches that the model has absorbed.

    Attributes:
        states: the sum of their metric states, little-endian float64; empty: none had states.
    """

    complete: bool
    batches: int
    records: int
    states: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """How far the groups are with a task.

    Attributes:
        next_batch: the least next batch of the task over all groups; the number of batches when it is complete.
        credits: the incarnation of each ps that answered.
    """

    next_batch: int
    credits: Mapping[PodName, Incarnation]
    placement_version: int = 1

    @staticmethod
    def of(
        replies: Mapping[PodName, BatchReply], incarnations: Mapping[PodName, Incarnation], version: int
    ) -> TaskProgress:
        """The progress by what every ps answered: every group has absorbed the batches before the least next batch."""
        return TaskProgress(
            next_batch=min([reply.next_batch for reply in replies.values()]),
            credits=MappingProxyType(dict(incarnations)),
            placement_version=version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """What became of a push.

    Attributes:
        next_batch: the least next batch of the task over all groups: batch + 1 or more when every group has this one;
            less when a ps was restored from an older snapshot; the worker continues from there.
        step: the most batches absorbed by a group; 0: unknown, because none lacked the batch.
        not_finite: where NaN or infinity was found, or empty. The batch was then not absorbed.
        staleness: optimizer updates between pull and absorption, the most of all ps; None: no ps absorbed a gradient.
    """

    next_batch: int
    credits: Mapping[PodName, Incarnation]
    placement_version: int = 1
    step: int
    not_finite: str = ""
    staleness: int | None = None

    @staticmethod
    def of(
        replies: Mapping[PodName, BatchReply], incarnations: Mapping[PodName, Incarnation], version: int
    ) -> PushOutcome:
        """The outcome by what every ps answered."""
        step, staleness, not_finite = 0, None, []
        for reply in replies.values():
            if isinstance(reply, PushReply):
                step = max(step, reply.step)
                if reply.staleness is not None:
                    staleness = max(staleness or 0, reply.staleness)
                if reply.verdict is PushVerdict.NOT_FINITE:
                    not_finite.append(reply.message)
        return PushOutcome(
            next_batch=min([reply.next_batch for reply in replies.values()]),
            credits=MappingProxyType(dict(incarnations)),
            placement_version=version,
            step=step,
            not_finite="; ".join(not_finite),
            staleness=staleness,
        )

    def is_certainly_pulled(self, request: PushRequest, *, sent_once: bool) -> bool:
        """Whether weights that were pulled right behind the push, on the same connections, contain it for certain.

        Args:
            sent_once: whether every ps got it exactly once; a repeated push may have come after the pull.
        """
        return sent_once and not self.not_finite and self.next_batch == request.batch + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """The state that a batch is computed from.

    Attributes:
        dense: float32, flat over all variables in the signature's order; empty if not wanted.
        rows: by table name; float32[n, width] in the order of the pull's ids.
        iterations: optimizer updates up to this state, by ps.
        step: batches absorbed up to this state, the least over all ps.
        release: returns the receive buffers; the arrays, and whatever aliases them, must not be used afterwards.
    """

    dense: Floats
    rows: Mapping[str, Floats]
    iterations: Mapping[PodName, int]
    step: int
    release: Callable[[], None]

    @property
    def iteration(self) -> int:
        """The least iteration of all ps."""
        return min(self.iterations.values())


Absorbed = TaskProgress | PushOutcome
"""Proof that a task is complete: which ps answered, and by which version of the placement."""
