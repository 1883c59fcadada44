"""What a worker counts while it works on a task: records, losses, metric states and where the time went."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.model.metric_states import MetricArrays, sum_states


class Stopwatch:
    """Counts where time goes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the time of a block under ``phase``."""
        started_s = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - started_s


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums over the batches of one task that this worker computed.

    Attributes:
        records: raw records, those that the user's filter dropped included.
        counted: numbers of the batches, empty ones included.
        loss_sum: sum over batches of the mean loss of a batch.
        states: metric states, the loss (weighted by records) among them.
        seconds: phase -> seconds.
    """

    records: int = 0
    counted: RangeSet = field(default_factory=RangeSet)
    loss_sum: float = 0.0
    states: MetricArrays = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        """How many batches were counted."""
        return len(self.counted)

    def add_batch(self, batch: int, *, records: int, loss: float = 0.0) -> None:
        """Count a batch of so many raw records and this mean loss; one that was counted before adds nothing."""
        if batch in self.counted:
            return
        self.counted.add(batch)
        self.records += records
        self.loss_sum += loss

    def add_states(self, states: MetricArrays) -> None:
        """Add metric states of batches that were counted."""
        self.states = sum_states((self.states, states))

    def add_seconds(self, seconds: Mapping[str, float]) -> None:
        """Add to the phases."""
        for phase, spent_s in seconds.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent_s
