"""The page's section about TensorFlow's ParameterServerStrategy beside asynchronous jobs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.cases import Case
from benchmarks.quality.results import ASYNC, PSS, Result
from benchmarks.quality.rows import WORKERS, Row, number, seeds_text, table, table_rows, worker_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One metric of one model: the job, with ``fit``, and the strategy."""

    job: Row
    strategy: Row

    def is_tried(self, workers: int) -> bool:
        """Whether both have results."""
        return workers in self.job.jobs and workers in self.strategy.jobs

    def is_behind(self, workers: int) -> bool:
        """Whether the job's median is worse than the strategy's."""
        job, strategy = self.job.jobs[workers], self.strategy.jobs[workers]
        return job.is_worse_than_median(strategy, self.job.metric)

    def is_worse(self, workers: int) -> bool:
        """Whether the job's median is worse than all seeds of the strategy and of ``fit``."""
        job, strategy = self.job.jobs[workers], self.strategy.jobs[workers]
        return job.is_worse_than(strategy, self.job.metric) and (self.job.fit is None or self.job.is_worse(workers))


def pairs_of(results: Sequence[Result], cases: Sequence[Case]) -> list[Pair]:
    """Asynchronous jobs beside the strategy, metric by metric; empty if the strategy has no results."""
    strategies = table_rows(results, cases, PSS)
    if not any(row.jobs for row in strategies):
        return []
    jobs = table_rows(results, cases, ASYNC)
    return [Pair(job=job, strategy=strategy) for job, strategy in zip(jobs, strategies, strict=True)]


def in_short(pairs: Sequence[Pair]) -> list[str]:
    """For each number of workers: the models of which jobs are at least as good as the strategy."""
    return [_short(pairs, workers) for workers in WORKERS if any(pair.is_tried(workers) for pair in pairs)]


def _short(pairs: Sequence[Pair], workers: int) -> str:
    tried = [pair for pair in pairs if pair.is_tried(workers)]
    titles = {pair.job.case.name: pair.job.case.title for pair in tried}
    behind = {pair.job.case.name for pair in tried if pair.is_behind(workers)}
    worse = {pair.job.case.name for pair in tried if pair.is_worse(workers)}
    beside = f"- Asynchronous beside TensorFlow's ParameterServerStrategy, {worker_count(workers)}"
    parts = [f"{beside}: {len(titles) - len(behind)} of {len(titles)} models are at least as good"]
    for words, names in (("Less good by no more than seeds differ", behind - worse), ("Worse", worse)):
        if names:
            parts.append(f"{words}: {'; '.join(titles[name] for name in titles if name in names)}")
    return ". ".join(parts) + "."


def section(pairs: Sequence[Pair], results: Sequence[Result]) -> str:
    """The section with the table."""
    cells = [[_cell(pair, workers) for workers in WORKERS] for pair in pairs]
    compared = table([pair.job for pair in pairs], [worker_count(workers) for workers in WORKERS], cells)
    staleness = {workers: _staleness(results, workers) for workers in WORKERS}
    late = ", ".join(f"{value:.1f} with {worker_count(workers)}" for workers, value in staleness.items() if value)
    counts = ", ".join(f"{seeds_text(_runs(results, workers))} with {worker_count(workers)}" for workers in WORKERS)
    return _SECTION.format(table=compared, late=late, seeds=counts)


def _cell(pair: Pair, workers: int) -> str:
    if not pair.is_tried(workers):
        return "-"
    text = f"{number(pair.job.jobs[workers].median)} / {number(pair.strategy.jobs[workers].median)}"
    return f"**{text}** ▼" if pair.is_worse(workers) else text


def _staleness(results: Sequence[Result], workers: int) -> float:
    runs = _runs(results, workers)
    return statistics.mean(each.metrics["staleness"] for each in runs) if runs else 0.0


def _runs(results: Sequence[Result], workers: int) -> list[Result]:
    return [each for each in results if each.cell.mode == PSS and each.cell.workers == workers]


_SECTION = """\
## Beside TensorFlow's ParameterServerStrategy

Each cell has the result of an asynchronous job with the default options, and that of ParameterServerStrategy: medians
over seeds. ▼ marks a job that is worse than all seeds of the strategy and all seeds of `fit`.

{table}

Keras 3 does not support the strategy in `model.fit`, so a `ClusterCoordinator` schedules one step per batch, with
Keras' own model and optimizer. It can train all fourteen models: one ps and the workers as servers of one process, the
batches, number of updates and epochs of `fit`. Two things differ from a job. Layer state such as BatchNormalization's
averages is read and assigned, so that an update of another worker can get lost. And the coordinator starts each step of
each worker, which delays small steps, so that fewer of them overlap: the mean number of updates that a gradient missed
was {late}. In a job with the default bound it is at most
half of the number of other workers. Seeds of the strategy: {seeds}.
Run it with

    python -m benchmarks.quality --modes pss"""
