"""Writes docs/quality.md from results."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.quality import comparison
from benchmarks.quality.cases import Case
from benchmarks.quality.results import ASYNC, FIT, SYNC, Result
from benchmarks.quality.rows import WORKERS, Row, in_short, marked, number, seeds_text, table, table_rows, worker_count
from benchmarks.quality.setting import Setting

TITLES = {ASYNC: "Asynchronous (the default)", SYNC: "Synchronous (`--use_async=false`)"}


def page(results: Sequence[Result], cases: Sequence[Case], setting: Setting) -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    rows = {mode: table_rows(results, cases, mode) for mode in (ASYNC, SYNC)}
    pairs = comparison.pairs_of(results, cases)
    short = [*(in_short(rows[mode], TITLES[mode]) for mode in rows), *comparison.in_short(pairs)]
    parts.append("## Results in short\n\n" + "\n".join(short))
    parts.append(_CHOICE)
    parts += [f"## {TITLES[mode]}\n\n{_table(rows[mode])}" for mode in rows]
    if pairs:
        parts.append(comparison.section(pairs, results))
    parts.append(_ending(results, setting))
    return "\n\n".join(parts) + "\n"


def _table(rows: list[Row]) -> str:
    header = ["`fit`: median (least to greatest)", *map(worker_count, WORKERS)]
    return table(rows, header, [[_fit(row), *(marked(row, workers) for workers in WORKERS)] for row in rows])


def _fit(row: Row) -> str:
    fit = row.fit
    return f"{number(fit.median)} ({number(fit.least)} to {number(fit.greatest)})" if fit else "-"


def _ending(results: Sequence[Result], setting: Setting) -> str:
    jobs = [each for each in results if each.cell.mode in TITLES]
    seeds = {workers: seeds_text([each for each in jobs if each.cell.workers == workers]) for workers in WORKERS}
    return _ENDING.format(
        fit=seeds_text([each for each in results if each.cell.mode == FIT]),
        jobs=", ".join(f"{text} with {worker_count(workers)}" for workers, text in seeds.items()),
        machine=setting.machine,
        date=setting.date,
        minutes=round(setting.wall_s / 60),
    )


_INTRODUCTION = """\
# Model quality: jobs beside `fit`

Does a job give the model that `model.fit` gives? This page compares fourteen models. `fit` and the jobs have the same
model file, data, number of epochs and records per update. The values are results on validation data after training. A
value is marked with ▼ where the median over seeds is worse than the worst of `fit`'s seeds. Models and data are
small, so that all fits and jobs run in two hours; `fit`'s range says how much of a difference is chance.
A dash means that there is no result yet. [Rings](#allreduce) have a section of their own.

![Each model's results by number of workers, beside the range of fit](quality.svg)"""

_CHOICE = """\
## What to choose

- **One worker** is `fit` with the parameters in another process. Every gradient contains all earlier batches.
- **Several asynchronous workers** are the fastest. A gradient is computed from weights that lack what some of the other
  workers push meanwhile: with 6 workers up to five batches. Models with recurrent layers, a large learning rate, or
  few updates in all feel this most. `--max_staleness=none` is faster still, and often worse: workers do not wait for
  each other.
- **Synchronous workers** with `--use_async=false --global_batch_size=N` make the updates of one process with batches
  of N records. Choose this when the asynchronous result is marked for a model like yours. Two things depend on the
  minibatch of a single worker, which is N divided by the number of workers: the statistics of BatchNormalization, and
  losses that compare the records of a batch with each other, such as the in-batch softmax. Give such models
  minibatches that are large enough: use a greater N or fewer workers.
- A smaller `--max_staleness`, `--lr_staleness_modulation` and `--grads_to_wait` are between the two. Compare on your
  own validation data."""

_ENDING = """\
## How this was measured

    make quality

Seeds: {fit} of `fit`, and jobs: {jobs}. Each job ended in an exact audit: every batch counted exactly once.
Synchronous jobs split `fit`'s batch among the workers. Metrics such as accuracy are better when they are greater,
losses when they are less. `top10` is the share of records whose item is among the ten best of all items. `maximum` is
the value of a weight in which a layer keeps the greatest input; it has to be exact.
`fit` and the jobs shuffle all records in each epoch, which is the default for data of this size. With
`--shuffle=records`, which shuffles within tasks, the two padded texts end at a loss of 0.61 with one worker.

The runs of the table of 300,000 rows are older than the sum of squares that Adam gets for rows that a batch has several
times: their `fit` and their jobs square the sum. Keras' own `fit` ends at a loss of 0.608 (0.585 to 0.616).

Machine: {machine}. Date: {date}. All runs together took {minutes} minutes.

`python -m benchmarks.quality --help` shows how to run single models again. The models are in
`benchmarks/quality/models`."""
