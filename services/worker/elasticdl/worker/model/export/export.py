"""The trained model as files that plain TensorFlow loads, without this package: ``saved_model`` and ``model.keras``.

Swapped tables become ordinary ``keras.layers.Embedding`` layers with all their rows, so the whole model must fit into
the memory of one worker; larger models are exported with tables in Parquet, see ``without_tables``. ``check_export`` is
the early refusal of a larger export, before training starts. A subclassed
model's ``model.keras`` needs the user's class to load, as always with Keras; its ``saved_model`` does not.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared import words
from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.job.model_file import KERAS_FILE, SAVED_MODEL, WEIGHTS_FILE
from elasticdl.shared.storage import to_uri
from elasticdl.shared.storage.file_store import translate
from elasticdl.worker.model.build import make
from elasticdl.worker.model.dense import Float32Array
from elasticdl.worker.model.embeddings.swap import FLOAT_BYTES, Census
from elasticdl.worker.model.export.comparison import compare_files, kept, predictions_of, served
from elasticdl.worker.model.export.failures import check_resources, writing
from elasticdl.worker.model.export.replacing import replace, unfinished
from elasticdl.worker.model.export.serving_signature import as_inputs, named, signature_of
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.class_names import write_classes
from elasticdl.worker.model.user.keras_weights import KerasWeights

WEIGHTS_SUFFIX = ".weights.h5"
EXPORTED = (SAVED_MODEL, KERAS_FILE)
"""The files and folders of an exported model that hold its weights: each holds all of them."""
_DISK_FULL = os.strerror(errno.ENOSPC)
ROWS_PER_READ = 1 << 16
COMPARED_BYTES_MAX = 1 << 30
"""Largest model whose files are compared with it: each of them is loaded for that, beside the model itself."""

RowsFunction = Callable[[str, NDArray[np.int64]], Float32Array]
"""(table name, ids (k,)) -> their rows (k, width), untrained ones from the initializer."""


def check_export(runner: ModelRunner, export_bytes_max: int) -> int:
    """Say before training whether the model can be exported.

    Returns:
        The size of the exported weights, in bytes.

    Raises:
        UserError: a table without ``input_dim``, or a model above the limit.
    """
    for table in runner.tables:
        if not table.input_dim:
            raise UserError(
                f"{runner.module.path}: embedding {table.name} has no input_dim, so the model can't be exported",
                hint="Give elasticdl.layers.Embedding input_dim, or export tables as Parquet files: "
                "--export_tables=parquet. ModelCheckpoint and --save_best need input_dim.",
            )
    floats = runner.dense.size + sum(table.input_dim * table.width for table in runner.tables)
    size = floats * FLOAT_BYTES
    if size > export_bytes_max:
        largest = max(runner.tables, key=lambda table: table.input_dim * table.width, default=None)
        named = f"; its largest table is {largest.name}, {largest.input_dim:,} x {largest.width}" if largest else ""
        raise UserError(
            f"{runner.module.path}: the exported model would be {words.size(size)}, "
            f"above the limit of {words.size(export_bytes_max)}{named}",
            hint="Export its tables as Parquet files: --export_tables=parquet. ModelCheckpoint and --save_best write "
            "whole models, so do without them.",
        )
    return size


def export(
    runner: ModelRunner,
    dense: Float32Array,
    rows_of: RowsFunction,
    output_dir: Path,
    names: Collection[str] = EXPORTED,
) -> list[str]:
    """Write ``saved_model`` and ``model.keras`` into a local folder, replacing what is there.

    Args:
        output_dir: where to; the files are complete before they take their names.

    Returns:
        What the user has to know about files that don't load.

    Raises:
        UserError: the model can't be exported, or what was written predicts something else than the trained model.
    """
    size = check_export(runner, np.iinfo(np.int64).max)
    path = runner.module.path
    model = _plain_model(runner, dense, rows_of)
    notes: list[str] = []
    with _unfinished(output_dir) as written:
        if SAVED_MODEL in names:
            with writing(path, SAVED_MODEL), disk_errors_of(output_dir):
                _write_saved_model(model, runner, written / SAVED_MODEL)
                write_classes(runner.module.classes, written / SAVED_MODEL)
        if KERAS_FILE in names:
            with writing(path, KERAS_FILE), disk_errors_of(output_dir):
                model.save(written / KERAS_FILE)
                write_classes(runner.module.classes, written / KERAS_FILE)
        if size <= COMPARED_BYTES_MAX and runner.example.labels is not None:
            features = runner.example.features
            with writing(path, "and comparing the exported files"):
                files = {
                    SAVED_MODEL: partial(served, written / SAVED_MODEL, as_inputs(model, features)),
                    KERAS_FILE: partial(kept, runner, written / KERAS_FILE, features),
                }
                files = {name: files[name] for name in names}
                problems = compare_files(runner, model, predictions_of(runner, dense, rows_of), files)
            notes += (_note_on(runner, written / name, problem) for name, problem in problems.items())
        with disk_errors_of(output_dir):
            for name in names:
                replace(written / name, output_dir / name)
    return notes


def _note_on(runner: ModelRunner, file: Path, problem: str) -> str:
    """Which parts of a file load that does not load as a model, found by trying."""
    if file.name != KERAS_FILE:
        return f"{file.name} does not load: {problem}"
    module = runner.module
    weights = KerasWeights(file=file, shown=file.name, problem=problem)
    whole = make(module, runner.example, Census(swap_bytes_min=0, plain=True), seed=runner.settings.seed)
    try:
        weights.load_into(whole, module.path)
    except UserError:
        return f"{file.name} does not load, nor do its weights alone: {problem}. Use {SAVED_MODEL}"
    return (
        f"{file.name} does not load as a model, as {problem}. {SAVED_MODEL} loads, and so do the weights: "
        f'{module.file.symbol}().load_weights("{file.name}")'
    )


def export_or_save_weights(
    runner: ModelRunner, dense: Float32Array, rows_of: RowsFunction, output_dir: Path
) -> list[str]:
    """As ``export``, but if the model can't be exported, write its weights alone, so that training was not for nothing.

    Raises:
        UserError: as ``export``; names the file with the weights, and what to do.
    """
    try:
        return export(runner, dense, rows_of, output_dir)
    except UserError as error:
        try:
            export_file(runner, dense, rows_of, output_dir / WEIGHTS_FILE)
        except UserError:
            raise error from None  # The model can't even be made.
        make = f"{runner.module.file.symbol}()"
        raise UserCodeError(
            str(error),
            hint=f"The weights are in {WEIGHTS_FILE} of the output, for the model that {make} returns: "
            f'model.load_weights("{WEIGHTS_FILE}").',
            traceback=getattr(error, "traceback", ""),
        ) from error


def export_file(runner: ModelRunner, dense: Float32Array, rows_of: RowsFunction, file: Path) -> None:
    """Write the model as one local file, replacing what is there: a ``.keras`` file, or a ``.weights.h5`` file.

    Args:
        file: where to; it is complete before it takes its name.
    """
    check_export(runner, np.iinfo(np.int64).max)
    model = _plain_model(runner, dense, rows_of)
    with _unfinished(file.parent) as folder, writing(runner.module.path, file.name), disk_errors_of(file.parent):
        written = folder / file.name
        if file.name.endswith(WEIGHTS_SUFFIX):
            model.save_weights(written)
        else:
            model.save(written)
            write_classes(runner.module.classes, written)
        written.replace(file)


@contextmanager
def _unfinished(output_dir: Path) -> Iterator[Path]:
    """``replacing.unfinished``, whose errors of the disk are told from those of the model."""
    with ExitStack() as stack:
        with disk_errors_of(output_dir):
            folder = stack.enter_context(unfinished(output_dir))
        yield folder


@contextmanager
def disk_errors_of(folder: Path) -> Iterator[None]:
    """Translate errors of the disk, which Python and TensorFlow report each in their way, and name the folder."""
    try:
        yield
    except tf.errors.OpError as error:
        if _DISK_FULL not in error.message:
            raise
        raise translate(OSError(errno.ENOSPC, _DISK_FULL), to_uri(folder)) from error
    except OSError as error:
        raise translate(error, to_uri(folder)) from error


def _write_saved_model(model: Any, runner: ModelRunner, folder: Path) -> None:
    """Like ``model.export``, with ``training=False``: augmentation layers default to training mode."""
    taken = signature_of(model)
    types = named(model, runner.example.spec.features) if taken is None else taken
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serve", lambda inputs: model(inputs, training=False), [types])
    try:
        archive.write_out(folder, verbose=False)
    except AssertionError as error:
        traced = archive._tf_trackable.serve._list_all_concrete_functions()
        check_resources(runner.module.path, model, (one.graph for one in traced), error)
        raise


def _plain_model(runner: ModelRunner, dense: Float32Array, rows_of: RowsFunction) -> Any:
    """The user's model made once more, with ordinary layers and the trained weights."""
    census = Census(swap_bytes_min=0, plain=True)
    model = make(runner.module, runner.example, census, seed=runner.settings.seed)
    served = set()
    for table in runner.built.tables:
        variable = census.layers[table.number]._embeddings
        served.add(id(variable))
        variable.assign(_table(table.spec.name, tuple(variable.shape), rows_of))
    others = [variable for variable in model.weights if id(variable) not in served]
    if [one.shape for one in others] != [one.shape for one in runner.built.model.weights]:
        raise InvariantError("the model made for export has other variables than the one that was trained")
    runner.dense.assign(others, dense)
    return model


def _table(name: str, shape: tuple[int, int], rows_of: RowsFunction) -> Float32Array:
    table = np.empty(shape, np.float32)
    for start in range(0, len(table), ROWS_PER_READ):
        ids = np.arange(start, min(start + ROWS_PER_READ, len(table)), dtype=np.int64)
        table[ids[0] : ids[-1] + 1] = rows_of(name, ids)
    return table
