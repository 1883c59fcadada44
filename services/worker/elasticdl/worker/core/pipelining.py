"""Which operations of which batches may run now. This module alone decides what overlaps, and the batch prefetch.

Each batch is read, pulled for, computed and pushed. Batches are kept in a window, in the order of their refs; the ps
see pulls and pushes in an order that depends on the staleness alone, never on timing:

==========  ============================================  =================================================
staleness   order on the wire                             a batch is computed from weights that contain
==========  ============================================  =================================================
0           pull 0, push 0, pull 1, push 1, pull 2 ...    all earlier batches of this worker
1           pull 0, pull 1, push 0, pull 2, push 1 ...    all earlier batches of this worker except the last
==========  ============================================  =================================================

In synchronous training the staleness is 0, and a ps refuses a pull as long as the update before its batch is not made.
A worker that trains several tasks then continues with the batch of another task. With ``--max_staleness`` a ps refuses
a pull as long as another batch could become too stale by it.

With staleness 0, a pull is sent right behind the push on the same connections when its batch is read by then: one
round trip instead of two. Not so in synchronous training, where it usually waits for other workers. With staleness 1,
the pull for batch k + 1 and the push of batch k - 1 run while batch k is computed. A push then waits until the next
batch has its weights, or until the queue is known to be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from elasticdl.shared.job.rounds import RoundKey
from elasticdl.shared.job.spec import JobSpec
from elasticdl.worker.core.batch_order import BatchRef
from elasticdl.worker.core.tally import Sample
from elasticdl.worker.failures import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """How much may overlap.

    Attributes:
        staleness: how many of its own batches a worker's weights may lack: 0 or 1. 1 hides the time of pulls and
            pushes behind computation, at the cost of gradients that are one batch old.
        prefetch_batches: ``--prefetch_batches``: batches that are read and fed ahead of the one that is computed,
            across tasks, at least 1. Of short batches, up to ``SHORT_BATCHES_IN_A_ROW`` more.
        is_admitted: whether a ps decides when each batch may be pulled (synchronous training, bounded staleness). Other
            workers may wait for such a batch: it is pulled when it can be computed at once, and computed and pushed
            before anything else starts.
        joins_pulls: with a staleness of 0, whether a pull follows the push before it in one round trip.
    """

    staleness: int = 0
    prefetch_batches: int = 2
    is_admitted: bool = False
    joins_pulls: bool = True

    def __post_init__(self) -> None:
        if self.staleness not in (0, 1):
            raise ValueError(f"staleness is 0 or 1, not {self.staleness}")
        if self.prefetch_batches < 1:
            raise ValueError(f"at least 1 batch has to be read ahead, not {self.prefetch_batches}")

    @classmethod
    def of(cls, spec: JobSpec, *, staleness: int) -> PipelineSettings:
        """What may overlap in a worker of a job; a bound of the staleness allows none within a worker."""
        is_admitted = spec.synchronous or spec.bounds_staleness
        return cls(
            staleness=0 if is_admitted else staleness,
            prefetch_batches=spec.prefetch_batches,
            is_admitted=is_admitted,
            joins_pulls=not spec.synchronous,
        )


SHORT_BATCHES_IN_A_ROW = 3
"""Short batches that are read beyond ``prefetch_batches``."""


class Phase(Enum):
    """How far a batch is."""

    READING = "reading"
    READ = "read"
    FAILED = "failed"
    """It could not be read; reported once every earlier batch is pushed."""
    PULLING = "pulling"
    PULLED = "pulled"
    COMPUTING = "computing"
    COMPUTED = "computed"
    PUSHING = "pushing"


_BUSY = (Phase.READING, Phase.PULLING, Phase.COMPUTING, Phase.PUSHING)
_AHEAD = (Phase.READING, Phase.READ, Phase.FAILED)
_UNPUSHED = (Phase.COMPUTED, Phase.PUSHING)
_HAS_WEIGHTS = (Phase.PULLED, Phase.COMPUTING, Phase.COMPUTED, Phase.PUSHING)


@dataclass(slots=True)
class Batch:
    """A batch in the window.

    Attributes:
        is_void: its task was repositioned, finished or given away; it is dropped when it is not busy.
        is_delayed: synchronous training: its round is not open; batches of other tasks come first.
        failure: why it could not be read: the data or user code, or the reason why storage did not deliver it.
        sample: collects its times; None: it is no sample.
    """

    ref: BatchRef
    phase: Phase = Phase.READING
    is_void: bool = False
    is_empty: bool = False
    is_delayed: bool = False
    records: int = 0
    failure: Failure | str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    sample: Sample | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a lane works on it."""
        return self.phase in _BUSY

    @property
    def has_weights(self) -> bool:
        """Whether its weights were pulled and it is not pushed yet."""
        return self.phase in _HAS_WEIGHTS and not self.is_empty

    @property
    def is_ready(self) -> bool:
        """Whether it can be computed."""
        return self.phase is Phase.PULLED or (self.phase is Phase.READ and self.is_empty)

    @property
    def needs_pull(self) -> bool:
        """Whether its weights can be pulled."""
        return self.phase is Phase.READ and not self.is_empty


class Conditions(NamedTuple):
    """What else decides.

    Attributes:
        queue_is_empty: no further batch is to be expected soon.
        auxiliary_waits: an auxiliary task waits for the end of the running batch, or runs.
        is_stopping: the running batch is the last one.
    """

    queue_is_empty: bool = False
    auxiliary_waits: bool = False
    is_stopping: bool = False


def may_read(
    window: Sequence[Batch],
    settings: PipelineSettings,
    *,
    tasks: int = 1,
    is_later: Callable[[Batch], bool] | None = None,
    batches_are_short: bool = False,
) -> bool:
    """Whether another batch may be read ahead.

    Short batches are read several at a time. Data and code of reading and feeding are in the processor's caches from
    the second one on, and the thread that reads wakes up less often.

    Args:
        settings: how many may be read ahead.
        tasks: how many are trained side by side.
        is_later: whether a batch is trained after the one that would be read. Those never keep it from being read: in
            synchronous training they wait for it.
        batches_are_short: whether a batch takes so little time that several are read in a row.
    """
    free = settings.prefetch_batches * tasks
    for batch in window:
        if batch.phase in _AHEAD and not (is_later and is_later(batch)):
            free -= 1
    if batches_are_short and any(batch.phase is Phase.READING for batch in window):
        free += SHORT_BATCHES_IN_A_ROW
    return free > 0


def insert(window: list[Batch], batch: Batch, key: Callable[[Batch], RoundKey]) -> None:
    """Put a batch without weights where it belongs by its key, after all batches that have weights."""
    place = len(window)
    while place and window[place - 1].phase in _AHEAD and key(window[place - 1]) > key(batch):
        place -= 1
    window.insert(place, batch)


def to_report(window: Sequence[Batch]) -> Batch | None:
    """The batch whose failed read is reported now: every earlier batch is pushed."""
    if not _any(window, Phase.FAILED):
        return None
    first = _first(window)
    return first if first is not None and first.phase is Phase.FAILED else None


def to_pull(window: Sequence[Batch], settings: PipelineSettings, conditions: Conditions) -> Batch | None:
    """The batch whose weights are pulled now."""
    if conditions.is_stopping or _any(window, Phase.PULLING, Phase.PUSHING):
        return None
    if settings.is_admitted and conditions.auxiliary_waits:
        return None
    earlier = 0
    for batch in _trainable(window):
        if batch.phase is Phase.FAILED:
            continue
        if batch.needs_pull:
            return batch if earlier <= settings.staleness else None
        if batch.phase is Phase.READING:
            return None
        earlier += 1
    return None


def to_compute(window: Sequence[Batch], settings: PipelineSettings, conditions: Conditions) -> Batch | None:
    """The batch that is computed now."""
    if conditions.is_stopping or _any(window, Phase.COMPUTING):
        return None
    unpushed = 0
    for batch in _trainable(window):
        if batch.phase in _UNPUSHED:
            unpushed += 1
            continue
        if conditions.auxiliary_waits and not (settings.is_admitted and batch.phase is Phase.PULLED):
            return None
        return batch if batch.is_ready and unpushed <= settings.staleness else None
    return None


def to_push(
    window: Sequence[Batch], settings: PipelineSettings, conditions: Conditions
) -> tuple[Batch, Batch | None] | None:
    """The batch that is pushed now, and the batch whose pull follows in the same round trip."""
    if not _any(window, Phase.COMPUTED) or _any(window, Phase.PUSHING, Phase.PULLING):
        return None
    trainable = _trainable(window)
    if not trainable or trainable[0].phase is not Phase.COMPUTED:
        return None
    first, following = trainable[0], None
    for batch in trainable[1:]:
        if batch.phase is not Phase.FAILED:
            following = batch
            break
    if conditions.is_stopping:
        return first, None
    if settings.staleness == 0:
        joins = settings.joins_pulls and following is not None and following.needs_pull
        return first, following if joins and not conditions.auxiliary_waits else None
    if following is None:
        is_last = conditions.queue_is_empty or not may_read(window, settings)
        return (first, None) if is_last else None
    return (first, None) if following.is_ready or following.phase in _HAS_WEIGHTS else None


def waits_for_successor(window: Sequence[Batch], settings: PipelineSettings) -> bool:
    """Whether a computed batch is not pushed before it is known which batch follows."""
    return settings.staleness == 1 and any(batch.phase is Phase.COMPUTED for batch in _valid(window))


def is_between_batches(window: Sequence[Batch]) -> bool:
    """Whether no batch is being computed or pushed; only then the worker stops."""
    computing = _any(window, Phase.COMPUTING, Phase.PUSHING)
    return not computing and not any(batch.phase is Phase.COMPUTED for batch in _valid(window))


def may_start_auxiliary(window: Sequence[Batch], settings: PipelineSettings) -> bool:
    """Whether an auxiliary task may start."""
    is_awaited = settings.is_admitted and any(batch.phase in (Phase.PULLING, Phase.PULLED) for batch in _valid(window))
    return is_between_batches(window) and not is_awaited


def _valid(window: Sequence[Batch]) -> list[Batch]:
    return [batch for batch in window if not batch.is_void]


def _trainable(window: Sequence[Batch]) -> list[Batch]:
    """Valid batches of tasks of which no pull is delayed."""
    valid, delayed = [], []
    for batch in window:
        if batch.is_delayed:
            delayed.append(batch.ref.task)
        if not batch.is_void:
            valid.append(batch)
    return [batch for batch in valid if batch.ref.task not in delayed] if delayed else valid


def _first(window: Sequence[Batch]) -> Batch | None:
    trainable = _trainable(window)
    return trainable[0] if trainable else None


def _any(window: Sequence[Batch], *phases: Phase) -> bool:
    for batch in window:  # noqa: SIM110  Every event asks several times, and a generator costs a call for each batch.
        if batch.phase in phases:
            return True
    return False
