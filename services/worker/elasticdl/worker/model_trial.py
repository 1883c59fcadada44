"""Tries a model on one batch of training data and one of validation data, without a ps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from elasticdl.shared.errors import UserError
from elasticdl.shared.process.running_batches import RunningBatchesFile
from elasticdl.worker.input.job_data import first_batch
from elasticdl.worker.input.table_ids import table_ids
from elasticdl.worker.model.fingerprint.fingerprint import check_made_again
from elasticdl.worker.model.user.calls import UserCodeError, user_code
from elasticdl.worker.model_builder import Built
from elasticdl.worker.ports import TableRows

_ROW_SCALE = 0.05
"""Standard deviation of the numbers that stand for the rows of the ps."""


def try_model(built: Built, running_batches: RunningBatchesFile) -> None:
    """Compute gradients of a training batch, evaluate a validation batch, and make the model again for an export.

    Args:
        built: the model and its data.
        running_batches: records the validation batch while it is read and fed.

    Raises:
        UserError: something that the job would refuse later.
    """
    runner = built.runner
    check_made_again(runner)
    example: Any = runner.example
    path = runner.module.path
    if example.labels is None:
        raise UserError(f"{path}: the feed gives no labels in mode 'train', so there is no loss to train with")
    rows = _rows(built, example, training=True)
    try:
        result = runner.train(example, runner.initial_dense(), rows, step_seed=0)
    except UserCodeError:
        _try_loss(built, rows)
        raise
    if not result.finite and not result.overflow and not runner.tables:
        what = "a gradient is NaN or infinite" if math.isfinite(result.loss) else f"the loss is {result.loss}"
        raise UserError(
            f"{path}: {what} for the first batch, with the initial weights",
            hint="Look for missing values in the data, log(0) or a division by zero in the loss, unscaled features.",
        )
    if built.validation is not None:
        batch: Any = first_batch(built.validation.records, built.validation.feeder, running_batches)
        runner.evaluate(batch, runner.initial_dense(), _rows(built, batch, training=False))


def _try_loss(built: Built, rows: TableRows) -> None:
    """Call the loss outside of a graph, which tells the line of an error in it."""
    runner = built.runner
    example: Any = runner.example
    predictions = runner.predict(example, runner.initial_dense(), rows)
    weights = () if example.weights is None else (example.weights,)
    with user_code(runner.module.path, "loss()"):
        runner.module.required("loss")(example.labels, predictions, *weights)


def _rows(built: Built, batch: Any, *, training: bool) -> TableRows:
    widths = {table.name: table.width for table in built.runner.tables}
    random = np.random.default_rng(0)
    found = table_ids(built.runner, batch, training=training)
    return {
        name: (random.normal(0.0, _ROW_SCALE, (len(ids.unique), widths[name])).astype(np.float32), ids.inverse)
        for name, ids in found.items()
    }
