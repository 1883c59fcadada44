"""What a worker counts: of one task for its outcome, and since its start for its heartbeats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.times import BatchTimes, Times

SAMPLED_TASKS = 8
"""Of so many consecutive tasks, one has the times of a batch in its record."""


@dataclass(slots=True, kw_only=True)
class Sample:
    """The times of one batch.

    Attributes:
        batch: its number in its task.
        seconds: part -> how long it took.
        ended_s: part -> when it ended, in the core's monotonic time.
    """

    batch: int
    seconds: dict[str, float] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, task: int, batch: int, batches: int) -> Sample | None:
        """Of a batch in the middle of its task: the first one may wait for the task. None: the batch is no sample."""
        is_sample = batches > 1 and batch == batches // 2 and task % SAMPLED_TASKS == 0
        return cls(batch=batch) if is_sample else None

    def add(self, seconds: Mapping[str, float], now_s: float) -> None:
        """Add parts that followed each other, the last of which has just ended."""
        add_seconds(self.seconds, seconds)
        for part, spent_s in reversed(list(seconds.items())):
            self.ended_s[part] = now_s
            now_s -= spent_s

    def times(self, now_s: float) -> BatchTimes:
        """As a record of now carries them."""
        ended = {part: now_s - ended_s for part, ended_s in self.ended_s.items()}
        return BatchTimes(batch=self.batch, times=Times.of(self.seconds), ended=Times.of(ended))


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums over the batches of one task that this worker computed.

    Attributes:
        records: raw records, including those that the user's filter dropped.
        loss_sum: sum over batches of the mean loss of a batch.
        overflows: how many of the batches were absorbed without gradients, because these overflowed float16.
        seconds: phase -> seconds.
        staleness: staleness in updates -> how many batches were absorbed with it.
        checksum: evaluate, predict: sum of the records' hashes, modulo 2**64.
        sample: train: a batch that the ps have absorbed, if one of the task is a sample.
    """

    records: int = 0
    checksum: int = 0
    counted: RangeSet = field(default_factory=RangeSet)
    loss_sum: float = 0.0
    overflows: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    staleness: dict[int, int] = field(default_factory=dict)
    sample: Sample | None = None

    @property
    def batches(self) -> int:
        """How many batches were counted."""
        return len(self.counted)

    def add_batch(self, batch: int, *, records: int, loss: float = 0.0, is_overflow: bool = False) -> None:
        """Count a batch with its number of raw records and mean loss. A batch that was counted before adds nothing."""
        if batch in self.counted:
            return
        self.counted.add(batch)
        self.records += records
        self.loss_sum += loss
        self.overflows += is_overflow

    def add_staleness(self, staleness: int | None) -> None:
        """Count an absorbed batch; None: no gradient was absorbed."""
        if staleness is not None:
            self.staleness[staleness] = self.staleness.get(staleness, 0) + 1

    def add_seconds(self, seconds: Mapping[str, float]) -> None:
        """Add to the phases."""
        add_seconds(self.seconds, seconds)


def add_seconds(sums: dict[str, float], seconds: Mapping[str, float]) -> None:
    """Add the seconds of each phase to its sum."""
    for phase, spent_s in seconds.items():
        sums[phase] = sums.get(phase, 0.0) + spent_s


@dataclass(slots=True)
class Meter:
    """Sums since the start of the process; the core writes them, and another thread reads them for the heartbeat.

    Attributes:
        records: records of batches that were pushed.
        step: step of the model after the last push.
    """

    records: int = 0
    batches: int = 0
    loss: float = 0.0
    step: int = 0
