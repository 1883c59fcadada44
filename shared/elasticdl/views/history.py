"""Loss and metrics of a job over time, from its folded state: as rows, as the history file, and as text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TypedDict

from elasticdl.master.core import State
from elasticdl.master.core.evaluation.state import EvaluationPhase

_ELEMENT = re.compile(r"(.+)\.(\d+)")
"""Name of an element of a metric that is a vector, such as F1Score with one value per class."""

_EXPLOSION = 10.0
"""How many times the best validation loss so far, and the training loss, are worth a warning."""


class EpochRow(TypedDict):
    """Training during one epoch; epochs count from 1.

    ``batches`` and ``records`` are those whose loss and metrics are known, each counted once, so at most the plan's.
    ``loss`` is the mean over these records; ``metrics`` are the other metrics on the training data. ``validation``
    holds the metrics of the model at the end of this epoch, which is step ``validation_step``. Without an evaluation of
    exactly this state they are empty and None. ``learning_rate`` is the one that callbacks set, None without them.
    """

    epoch: int
    loss: float | None
    metrics: dict[str, float | None]
    validation: dict[str, float | None]
    validation_step: int | None
    learning_rate: float | None
    batches: int
    records: int
    seconds: float


class EvaluationRow(TypedDict):
    """One evaluation on the validation data.

    ``epoch`` is the last complete epoch, 0 before the first. ``epoch_end`` tells whether the evaluated model contains
    all batches of the epochs up to it, and no others.
    """

    evaluation: int
    epoch: int
    epoch_end: bool
    step: int
    final: bool
    reason: str
    metrics: dict[str, float | None]
    seconds: float


def epoch_rows(state: State) -> list[EpochRow]:
    """One row per epoch that has started. Where the log lost records, the rows that were known before."""
    rows = {row["epoch"]: row for row in _folded_rows(state)}
    for _, lost in state.lost_logs:
        rows |= {row["epoch"]: row for row in read_history(lost.history) if _is_more_complete(row, rows)}
    return [row for _, row in sorted(rows.items())]


def read_history(text: str) -> list[EpochRow]:
    """The rows of a history file; none if it is damaged."""
    try:
        rows: list[EpochRow] = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return []
    return rows


def lost_history(state: State, history: str) -> str:
    """The rows of a history file that say more of their epochs than the log, as JSON lines."""
    rows = {row["epoch"]: row for row in epoch_rows(state)}
    return _lines(row for row in read_history(history) if _is_more_complete(row, rows))


def _is_more_complete(row: EpochRow, rows: Mapping[int, EpochRow]) -> bool:
    known = rows.get(row["epoch"])
    return known is None or _completeness(known) < _completeness(row)


def _completeness(row: EpochRow) -> tuple[int, bool, float]:
    """How much a row says: metrics that are computed again from the ps have neither an evaluation nor a duration."""
    return row["batches"], bool(row["validation"]), row["seconds"]


def _folded_rows(state: State) -> list[EpochRow]:
    """One row per epoch that the log tells of."""
    if state.training is None:
        return []
    validation = {row["epoch"]: row for row in evaluation_rows(state) if row["epoch_end"]}
    return [
        EpochRow(
            epoch=epoch + 1,
            loss=finite(totals.loss),
            metrics={name: finite(value) for name, value in sorted(totals.results.items()) if name != "loss"},
            validation=validation[epoch + 1]["metrics"] if epoch + 1 in validation else {},
            validation_step=validation[epoch + 1]["step"] if epoch + 1 in validation else None,
            learning_rate=state.callbacks.rate_of(epoch),
            batches=totals.batches,
            records=totals.records,
            seconds=round(max(0.0, totals.ended_s - totals.started_s), 3),
        )
        for epoch, totals in sorted(state.training.epochs.items())
        if totals.batches
    ]


def evaluation_rows(state: State) -> list[EvaluationRow]:
    """One row per finished evaluation."""
    return [
        EvaluationRow(
            evaluation=evaluation.number,
            epoch=evaluation.epoch + 1,
            epoch_end=evaluation.is_epoch_end,
            step=evaluation.step,
            final=evaluation.final,
            reason=evaluation.reason,
            metrics={name: finite(value) for name, value in sorted(evaluation.results.items())},
            seconds=round(max(0.0, evaluation.ended_s - evaluation.started_s), 3),
        )
        for evaluation in state.evaluations
        if evaluation.phase is EvaluationPhase.DONE
    ]


def validation_warnings(state: State) -> list[str]:
    """A sentence for each time that the validation loss explodes while the training loss is fine."""
    evaluations = evaluation_rows(state)
    training = {row["epoch"]: row["loss"] for row in epoch_rows(state)} if evaluations else {}
    found: list[str] = []
    best, exploded = math.inf, False
    for row in evaluations:
        loss, trained = row["metrics"].get("loss"), training.get(max(row["epoch"], 1))
        if loss is None or trained is None:
            continue
        explodes = 0 < _EXPLOSION * best < loss and _EXPLOSION * abs(trained) < loss
        if explodes and not exploded:
            found.append(
                f"The validation loss rose to {loss:.4g} at step {row['step']}, {loss / best:,.0f} times the best "
                f"so far ({best:.4g}), while the training loss is {trained:.4g}. Layers that behave differently in "
                "evaluation, such as BatchNormalization, may have diverged."
            )
        best, exploded = min(best, loss), explodes
    return found


class BestRow(TypedDict):
    """The best evaluated model; ``exported`` tells whether it is in the output, or will be at the end of the job."""

    metric: str
    value: float | None
    evaluation: int
    epoch: int
    step: int
    exported: bool


def best_row(state: State) -> BestRow | None:
    """The best evaluation so far; None: the job does not compare them, or there is none yet."""
    spec, best = state.job.best, state.best
    if spec is None or best.value is None:
        return None
    rows = [row for row in evaluation_rows(state) if row["metrics"].get(spec.metric) == best.value]
    row = next((row for row in rows if not best.saved or row["evaluation"] == best.saved), None)
    if row is None:
        return None
    return BestRow(
        metric=f"val_{spec.metric}",
        value=finite(best.value),
        evaluation=row["evaluation"],
        epoch=row["epoch"],
        step=row["step"],
        exported=best.saved > 0 and bool(state.job.output),
    )


def final_metrics(state: State) -> tuple[dict[str, float | None], str]:
    """The latest metrics of the job, and the data that they are from: ``validation`` or ``training``."""
    evaluations = evaluation_rows(state)
    if evaluations:
        return evaluations[-1]["metrics"], "validation"
    epochs = epoch_rows(state)
    if not epochs:
        return {}, "training"
    return {"loss": epochs[-1]["loss"], **epochs[-1]["metrics"]}, "training"


def history_lines(state: State) -> str:
    """The history file: one JSON line per epoch."""
    return _lines(epoch_rows(state))


def _lines(rows: Iterable[EpochRow]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def finite(value: float) -> float | None:
    """The value, or None if it is not finite: JSON has no NaN."""
    return value if math.isfinite(value) else None


def metrics_text(metrics: Mapping[str, float | None]) -> str:
    """``loss 0.1234  f1 [0.8100 0.7700]``: names ending in ``.0``, ``.1``... are the elements of one metric."""
    elements: dict[str, list[float | None]] = {}
    vectors = set()
    for name, value in metrics.items():
        element = _ELEMENT.fullmatch(name)
        elements.setdefault(element[1] if element else name, []).append(value)
        if element and int(element[2]) > 0:
            vectors.add(element[1])
    texts = {name: " ".join(map(_number_text, values)) for name, values in elements.items()}
    return "  ".join(f"{name} [{text}]" if name in vectors else f"{name} {text}" for name, text in texts.items())


def _number_text(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4f}"
