"""Tries a model on one batch of training data and one of validation data, or of data to predict, without a ps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.shared import words
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import KERAS_FILE
from elasticdl.shared.job.spec import ExportTables
from elasticdl.shared.model.signature import RowTable
from elasticdl.shared.storage import free_bytes, scheme_of
from elasticdl.shared.storage.uris import local_path
from elasticdl.worker.execution.input_lane import Dataset
from elasticdl.worker.input.job_data import first_batch, name_in_first_batch
from elasticdl.worker.input.table_ids import table_ids
from elasticdl.worker.model.embeddings.swap import FLOAT_BYTES
from elasticdl.worker.model.export.export import EXPORTED, check_export, export
from elasticdl.worker.model.export.without_tables import waves, write_without_tables
from elasticdl.worker.model.fingerprint.fingerprint import check_made_again
from elasticdl.worker.model.user.calls import UserCodeError, user_code
from elasticdl.worker.model_builder import Built
from elasticdl.worker.ports import Floats, Ids, TableRows
from elasticdl.worker.predictions.columns import output_columns
from elasticdl.worker.running_batches import RunningBatches

EXPORT_BYTES_MAX = 64 << 20
"""Largest model that is exported to try it; of larger ones only the end of the job writes files."""
_ROW_SCALE = 0.05
"""Size of the numbers that stand for the rows of the ps."""


def try_model(built: Built, running_batches: RunningBatches) -> None:
    """Do what the job does with a batch, and make the model again as an export does.

    A training job computes gradients of a training batch and evaluates a validation batch.
    """
    runner = built.runner
    check_made_again(runner)
    example: Any = runner.example
    path = runner.module.path
    source = built.training if built.kind.trains or built.validation is None else built.validation
    if built.outputs is not None:
        with _naming(built, source, running_batches, runner.predict):
            outputs = runner.predict(example, runner.initial_dense(), _rows(built, example, training=False))
        output_columns(outputs, built.outputs.output_names, example.count)
        return
    if example.labels is None:
        use = "train with" if built.kind.trains else built.kind.value
        raise UserError(f"{path}: the feed gives no labels in mode '{built.kind.value}', so there is no loss to {use}")
    if not built.kind.trains:
        with _naming(built, source, running_batches, runner.evaluate):
            runner.evaluate(example, runner.initial_dense(), _rows(built, example, training=False))
        return
    rows = _rows(built, example, training=True)
    with _naming(built, source, running_batches, runner.evaluate):
        try:
            while (result := runner.train(example, runner.initial_dense(), rows, step_seed=0)).overflow:
                pass  # The loss scale has been halved; it ends at the smallest one.
        except UserCodeError:
            _try_loss(built, rows)
            raise
    if not result.finite:
        raise UserError(
            f"{path}: {result.problem} for the first batch, with the initial weights",
            hint="Look for missing values in the data, log(0) or a division by zero in the loss, unscaled features.",
        )
    if built.validation is not None:
        batch: Any = first_batch(built.validation.records, built.validation.feeder, running_batches)
        with _naming(built, built.validation, running_batches, runner.evaluate):
            runner.evaluate(batch, runner.initial_dense(), _rows(built, batch, training=False))


@contextmanager
def _naming(built: Built, data: Dataset, running_batches: RunningBatches, run: Callable[..., object]) -> Iterator[None]:
    """Have an error of computing the first batch name the record that it is about, if it is about one."""

    def compute(batch: Any) -> None:
        run(batch, built.runner.initial_dense(), _rows(built, batch, training=False))

    try:
        yield
    except UserCodeError as error:
        raise name_in_first_batch(error, data.records, data.feeder, running_batches, compute) from error


def try_export(built: Built, output: str, name: str) -> list[str]:
    """Write a file of the untrained model as the end of the job will, and compare it with the model.

    Returns:
        What the user has to know about a file that doesn't load.

    Raises:
        UserError: a file can't be written, or predicts something else, or the output has no room for the model.
    """
    if built.export_tables is ExportTables.PARQUET:
        _check_room(output, built.runner.dense.size * FLOAT_BYTES)
        if name == KERAS_FILE:
            with tempfile.TemporaryDirectory(prefix="elasticdl-trial-") as folder:
                return write_without_tables(built.runner, built.runner.initial_dense(), Path(folder, name))
        return []
    size = check_export(built.runner, np.iinfo(np.int64).max)
    _check_room(output, len(EXPORTED) * size)
    if size > EXPORT_BYTES_MAX:
        return []
    tables = {table.name: table for table in built.runner.tables}
    with tempfile.TemporaryDirectory(prefix="elasticdl-trial-") as folder:
        return export(
            built.runner,
            built.runner.initial_dense(),
            lambda table, ids: np.float32(_ROW_SCALE) * waves(ids, tables[table].width),
            Path(folder),
            (name,),
        )


def _check_room(output: str, needed: int) -> None:
    if scheme_of(output) != "file":
        return
    folder = local_path(output)
    free = free_bytes(folder)
    if free < needed:
        raise UserError(
            f"the disk of the output {folder} has too little space for the model: "
            f"{words.size(free)} free, {words.size(needed)} needed",
            hint="Free some space there, or give another folder with --output.",
        )


def _try_loss(built: Built, rows: TableRows) -> None:
    """Call the loss outside of a graph, which tells the line of an error in it."""
    runner = built.runner
    example: Any = runner.example
    predictions = runner.predict(example, runner.initial_dense(), rows)
    weights = () if example.weights is None else (example.weights,)
    with user_code(runner.module.path, f"{runner.module.file.name_of('loss')}()"):
        runner.module.required("loss")(example.labels, predictions, *weights)


def _rows(built: Built, batch: Any, *, training: bool) -> TableRows:
    tables = {table.name: table for table in built.runner.tables}
    found = table_ids(built.runner, batch, training=training)
    return {name: (_initial_rows(ids.unique, tables[name]), ids.inverse) for name, ids in found.items()}


def _initial_rows(ids: Ids, table: RowTable) -> Floats:
    """Rows in the range of the table's initializer: a loss that is NaN with them is NaN in the job."""
    rule, numbers = table.initializer, waves(ids, table.width)
    match rule.distribution:
        case "zeros":
            middle, spread = 0.0, 0.0
        case "constant":
            middle, spread = rule.low, 0.0
        case "uniform":
            middle, spread = (rule.low + rule.high) / 2, (rule.high - rule.low) / 2
        case _:
            middle, spread = rule.low, rule.high
    return np.asarray(middle + spread * numbers, np.float32)
