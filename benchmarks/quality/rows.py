"""The rows of the page's tables: one metric of one model, by number of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.cases import KNOWN, Case
from benchmarks.quality.results import FIT, Result, Summary, summarize

WORKERS = (1, 2, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one model: ``fit``, and another way of training by number of workers."""

    case: Case
    metric: str
    fit: Summary | None
    jobs: dict[int, Summary]

    def is_worse(self, workers: int) -> bool:
        """Whether the job's median is outside the range of ``fit``'s seeds, on the worse side."""
        return self.fit is not None and workers in self.jobs and self.jobs[workers].is_worse_than(self.fit, self.metric)


def table_rows(results: Sequence[Result], cases: Sequence[Case], mode: str) -> list[Row]:
    """The rows of one mode's table."""
    found = []
    for case in cases:
        for metric in case.metrics:
            jobs = {workers: summarize(results, case.name, mode, workers, metric) for workers in WORKERS}
            fit = summarize(results, case.name, FIT, 0, metric)
            present = {workers: summary for workers, summary in jobs.items() if summary}
            found.append(Row(case=case, metric=metric, fit=fit, jobs=present))
    return found


def worker_count(workers: int) -> str:
    """A number of workers in words."""
    return "1 worker" if workers == 1 else f"{workers} workers"


def in_short(rows: Sequence[Row], title: str, counts: Sequence[int] = WORKERS) -> str:
    """For each number of workers: which models are within the range of ``fit``'s seeds."""
    lines = []
    for workers in counts:
        tried = {row.case.name: row.case.title for row in rows if workers in row.jobs}
        worse = {row.case.name for row in rows if row.is_worse(workers)}
        names = "; ".join(tried[name] for name in tried if name in worse)
        lines.append(
            f"- {title}, {worker_count(workers)}: {len(tried) - len(worse)} of {len(tried)} models "
            f"are as good as `fit`{f'. Worse: {names}' if names else ''}."
        )
    return "\n".join(lines)


def marked(row: Row, workers: int) -> str:
    """The median of a row's jobs, which is marked if it is worse than ``fit``."""
    if workers not in row.jobs:
        return "-"
    text = number(row.jobs[workers].median)
    return f"**{text}** ▼" if row.is_worse(workers) else text


def seeds_text(results: Sequence[Result]) -> str:
    """How many seeds some results have of each model: ``2``, or ``2 to 4``."""
    counts = Counter((each.cell.case, each.cell.mode) for each in results).values()
    least, most = min(counts, default=0), max(counts, default=0)
    return str(least) if least == most else f"{least} to {most}"


def number(value: float) -> str:
    """A result with three digits."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.2e}"


def table(rows: Sequence[Row], header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the rows of a model show its title once."""
    lines = [f"| {' | '.join(('model', 'metric', *header))} |", "|" + "---|" * (2 + len(header))]
    previous = ""
    for row, values in zip(rows, cells, strict=True):
        title = "" if row.case.name == previous else row.case.title
        previous = row.case.name
        metric = f"{row.metric} (one true value)" if row.metric in KNOWN else row.metric
        lines.append(f"| {' | '.join((title, metric, *values))} |")
    return "\n".join(lines)
