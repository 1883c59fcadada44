"""The training metrics of simulated jobs say how often each batch was counted: exactly as the ledgers have it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from tests.sim.job import SimJob

from elasticdl.master.core import State
from elasticdl.ps.shard.group import Group
from elasticdl.ps.shard.metric_sums import has_metrics
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.job.ledger import Ledger

Doubles = npt.NDArray[np.float64]
_FACTS = 4
"""Columns of a ``MetricTable`` before the states: epoch, batches, records, number of states."""


class MetricOracle:
    """Judges the sums that the ps keep, and the metrics that workers compute from them.

    Args:
        job: whose metric states have one value for each batch.
    """

    def __init__(self, job: SimJob) -> None:
        self._job = job
        self._read = 0
        """The last epoch whose sums a worker has read: those of earlier ones are dropped."""

    def reads(self, epoch: int) -> None:
        """A worker reads the sums of an epoch."""
        self._read = max(self._read, epoch)

    @staticmethod
    def results(counts: Doubles) -> Mapping[str, float]:
        """The metrics of an epoch of which each batch was counted so often."""
        return {"batches": float(counts.sum()), "most": float(counts.max()), "last": float(counts.nonzero()[0].max())}

    def wrong_sums(self, ps: str, shard: ModelShard | None) -> list[str]:
        """The sums of each group are those over the batches in its ledger."""
        groups = [*shard.groups, *shard.held] if shard is not None else []
        return [f"{ps}: {problem}" for group in groups for problem in self._wrong_sums(group)]

    def _wrong_sums(self, group: Group) -> list[str]:
        if not has_metrics(group.partitions):
            return []
        table = group.cut().metrics
        problems = []
        for epoch, (batches, records, counts) in self._absorbed(group.ledger).items():
            found = [row for row in table if int(row[0]) == epoch]
            if not found and (not batches or epoch < self._read):
                continue
            row = found[0] if found else np.array([epoch, 0, 0, 0])
            size = int(row[_FACTS - 1])
            states = np.pad(row[_FACTS : _FACTS + size], (0, counts.size - size))
            expected = np.array([epoch, batches, records, size, *counts])
            if not np.array_equal([*row[:_FACTS], *states], expected):
                problems.append(f"the metrics of epoch {epoch} are {row.tolist()}, absorbed is {expected.tolist()}")
        return problems

    def _absorbed(self, ledger: Ledger) -> Mapping[int, tuple[int, int, Doubles]]:
        """By epoch: batches, records, and how often each batch has metrics."""
        job = self._job
        sums: dict[int, tuple[int, int, Doubles]] = {}
        for number, (task, batch) in enumerate(job.batches):
            epoch = task // job.plan.tasks_per_epoch
            batches, records, counts = sums.setdefault(epoch, (0, 0, np.zeros(len(job.batches))))
            if batch < ledger.next_batch(task, job.plan.batches_of(task)):
                counts += job.metric_states(number)
                sums[epoch] = batches + 1, records + job.plan.records_of(task, batch), counts
        return sums

    def wrong_epochs(self, state: State) -> list[str]:
        """Each epoch has the metrics of all its batches. The end of a log may have been lost with some."""
        training = state.training
        assert training is not None
        problems = []
        everything = Ledger()
        for number, (task, batch) in enumerate(self._job.batches):
            if task < state.plan.tasks:
                everything.absorb(task, batch, self._job.plan.batches_of(task), 1, number)
        for epoch, (batches, records, counts) in self._absorbed(everything).items():
            totals = training.epochs.get(epoch)
            if not batches or (state.lost_logs and (totals is None or not totals.batches)):
                continue
            found = (totals.merged, totals.batches, totals.records, totals.results) if totals else None
            if found != (True, batches, records, self.results(counts) if counts.any() else {}):
                problems.append(f"the metrics of epoch {epoch} are {found}, it has {batches} batches")
        return problems
