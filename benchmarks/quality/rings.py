"""The page's section about jobs with ``AllreduceStrategy``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.quality.cases import Case
from benchmarks.quality.results import RING, Result, Summary
from benchmarks.quality.rows import WORKERS, Row, in_short, marked, number, seeds_text, table, table_rows, worker_count
from benchmarks.quality.setting import Setting

HEADING = "## AllReduce"
Ranges = dict[str, dict[str, tuple[float, float]]]
"""Case -> metric -> least and greatest result of ``fit``."""


def section(results: Sequence[Result], cases: Sequence[Case], ranges: Ranges, setting: Setting) -> str:
    """The section with the table."""
    found = [each for each in results if each.cell.mode == RING]
    rows = [
        replace(row, fit=Summary(values=tuple(ranges[row.case.name][row.metric])))
        for row in table_rows(found, cases, RING)
        if row.jobs
    ]
    counts = [workers for workers in WORKERS if any(workers in row.jobs for row in rows)]
    seeds = [
        f"{seeds_text([one for one in found if one.cell.workers == workers])} with {worker_count(workers)}"
        for workers in counts
    ]
    cells = [[_fit(row), *(marked(row, workers) for workers in counts)] for row in rows]
    return _SECTION.format(
        heading=HEADING,
        short=in_short(rows, "AllReduce", counts),
        table=table(rows, ["`fit`: least to greatest", *map(worker_count, counts)], cells),
        seeds=", ".join(seeds),
        machine=setting.machine,
        date=setting.date,
        minutes=round(setting.wall_s / 60),
    )


def with_section(page: str, section: str) -> str:
    """The page with a section about rings, in the place of an earlier one, before the last section."""
    parts = [part for part in re.split(r"(?m)^(?=## )", page) if not part.startswith(HEADING)]
    return "".join([*parts[:-1], section + "\n\n", parts[-1]])


def _fit(row: Row) -> str:
    return f"{number(row.fit.least)} to {number(row.fit.greatest)}" if row.fit else "-"


_SECTION = """\
{heading}

Jobs with `--distribution_strategy=AllreduceStrategy` and without parameter servers, whose workers share `fit`'s batch.
The table of 300,000 rows, which belongs on parameter servers, is left out.

{short}

{table}

**Each update is that of `fit`** with the same batch: with two and six members, `tests/e2e/test_ring_equals_fit.py`
compares 60 losses and the final weights, to 1e-5. So only the order of the records differs from `fit`, except for
layers and losses that look at a whole minibatch, and for the random numbers of dropout.

With many members two kinds of models are worse, because they look at the minibatch of one member: BatchNormalization of
a few records, and losses that compare the records of a batch, such as the in-batch softmax. One process that computes
each batch in as many parts gives the same ([benchmarks](benchmarks.md#rings-beside-fit)). For such models, use a
greater `--global_batch_size` or fewer workers.

Seeds: {seeds}. `fit` has up to 25: nine are too few to know the worst one.

Machine: {machine}, shared with other work. Date: {date}. The runs took {minutes} minutes."""
