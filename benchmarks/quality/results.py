"""Results of runs: a file with one line of JSON per run, and what the runs of a configuration have in common."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.quality.cases import HIGHER_IS_BETTER, KNOWN, ON_PS

FIT = "fit"
ASYNC, SYNC = "async", "sync"
RING = "ring"
"""Synchronous jobs with ``AllreduceStrategy``, with all variables in the workers."""
PSS = "pss"
"""TensorFlow's ParameterServerStrategy."""
ROUNDING = 1e-5
"""Relative difference that is not a difference: metrics are sums of float32."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One run of the comparison.

    Attributes:
        case: name of the model.
        mode: ``fit``, ``async``, ``sync``, ``ring`` or ``pss``.
        workers: of the job or the strategy; 0 for ``fit``.
        seed: of initial weights and order of records.
    """

    case: str
    mode: str
    workers: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run gave.

    Attributes:
        cell: the run.
        metrics: results on the validation data, ``loss`` among them. With ``pss`` also ``staleness``: updates of other
            workers between a step's pull and its push, mean over the steps.
        train_s: seconds of training, without the start of processes.
        wall_s: seconds that the run took; with ``fit``, an equal part for each seed.
    """

    cell: Cell
    metrics: dict[str, float]
    train_s: float
    wall_s: float


class ResultFile:
    """Keeps results as they come, so that an interrupted benchmark continues where it was."""

    def __init__(self, path: Path) -> None:
        """Read the results that the file holds already, if any; the last result of a cell counts."""
        self._path = path
        self._results: dict[Cell, Result] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                facts = json.loads(line)
                result = Result(**facts | {"cell": Cell(**facts["cell"])})
                self._results[result.cell] = result

    @property
    def results(self) -> list[Result]:
        """All results, ordered by cell."""
        return [self._results[cell] for cell in sorted(self._results)]

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._results

    def add(self, result: Result) -> None:
        """Keep a result, in the place of an earlier one of the same cell."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")
        self._results[result.cell] = result


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The values of one metric in the runs of one configuration."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over seeds."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The least value."""
        return min(self.values)

    @property
    def greatest(self) -> float:
        """The greatest value."""
        return max(self.values)

    def is_worse_than(self, fit: Summary, metric: str) -> bool:
        """Whether the median is worse than the worst of ``fit``'s seeds, by more than rounding."""
        return _is_outside(self.median, fit.least, fit.greatest, metric)

    def is_worse_than_median(self, other: Summary, metric: str) -> bool:
        """Whether the median is worse than the median of another configuration, by more than rounding."""
        return _is_outside(self.median, other.median, other.median, metric)


def _is_outside(value: float, least: float, greatest: float, metric: str) -> bool:
    """Whether a value is outside a range on the metric's worse side, by more than rounding."""
    below, above = value < least - ROUNDING * abs(least), value > greatest + ROUNDING * abs(greatest)
    if metric in KNOWN:
        return below or above
    return below if metric in HIGHER_IS_BETTER else above


def summarize(results: Iterable[Result], case: str, mode: str, workers: int, metric: str) -> Summary | None:
    """Sum up the runs of a configuration; None without runs."""
    values = [each.metrics[metric] for each in results if _key(each.cell) == (case, mode, workers)]
    return Summary(values=tuple(values)) if values else None


def write_ranges(results: Sequence[Result], path: Path) -> None:
    """Write ``fit``'s least and greatest value of each metric of each case, which a test compares jobs with."""
    ranges: dict[str, dict[str, list[float]]] = {}
    fits = {each.cell.case: each.metrics for each in results if each.cell.mode == FIT}
    for case, metrics in fits.items():
        found = {metric: summarize(results, case, FIT, 0, metric) for metric in metrics}
        ranges[case] = {metric: [one.least, one.greatest] for metric, one in found.items() if one}
    path.write_text(json.dumps(ranges, indent=1) + "\n")


def _key(cell: Cell) -> tuple[str, str, int]:
    return cell.case, cell.mode, cell.workers


def wanted(cases: Sequence[str], modes: Sequence[str], seeds: dict[int, int], fit_seeds: int) -> list[Cell]:
    """The cells of a run in their order: first ``fit``, then one seed of everything, then the next.

    Args:
        cases: names of models.
        modes: ``fit``, ``async``, ``sync``, ``ring``, ``pss``.
        seeds: number of workers -> how many seeds; seeds begin at 1.
        fit_seeds: how many seeds ``fit`` gets.
    """
    cells = []
    if FIT in modes:
        cells += [Cell(case=case, mode=FIT, workers=0, seed=seed + 1) for case in cases for seed in range(fit_seeds)]
    for seed in range(1, max(seeds.values(), default=0) + 1):
        cells += [
            Cell(case=case, mode=mode, workers=workers, seed=seed)
            for case in cases
            for mode in modes
            if mode != FIT
            for workers, count in seeds.items()
            if seed <= count and (mode != RING or (workers > 1 and case not in ON_PS))
        ]
    return cells
