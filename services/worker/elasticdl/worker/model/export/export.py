"""The trained model as files that plain TensorFlow loads, without this package: ``saved_model`` and ``model.keras``.

Swapped tables become ordinary ``keras.layers.Embedding`` layers with all their rows, so the whole model must fit into
the memory of one worker; larger models are exported with tables in Parquet, see ``without_tables``. ``check_export`` is
the early refusal of a larger export, before training starts. A subclassed
model's ``model.keras`` needs the user's class to load, as always with Keras; its ``saved_model`` does not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.models.functional import Functional  # No public name: ``keras.Model`` is also a subclassed model.
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
PREFIX = ".export-"
"""Prefix of folders whose files are not complete yet."""
_FORMER = "old-"
"""Prefix of what is replaced, where the file system can't exchange two names."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")
"""What TensorFlow takes for a name."""


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
    model = whole_model(runner, dense, rows_of)
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


def whole_model(runner: ModelRunner, dense: Float32Array, rows_of: RowsFunction) -> Any:
    """The trained model as Keras' object. Raises ``UserError``: a table has no ``input_dim``."""
    check_export(runner, np.iinfo(np.int64).max)
    return _plain_model(runner, dense, rows_of)


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


@contextmanager
def unfinished(output_dir: Path) -> Iterator[Path]:
    """A folder on the same disk for files that are not complete; it is deleted in the end.

    Folders of processes that were killed are deleted, too. A living one holds a lock on its folder.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    for left in output_dir.glob(f"{PREFIX}*"):
        _remove_left(left, output_dir)
    while True:
        folder = Path(tempfile.mkdtemp(dir=output_dir, prefix=PREFIX))
        descriptor = _locked(folder)
        if folder.is_dir():
            break
        os.close(descriptor)  # Another process took it for left over, before it was locked.
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def replace(new: Path, target: Path) -> None:
    """Give a finished file or folder its name, in one step where the system can exchange two names."""
    if not target.is_dir() or new.is_file():
        new.replace(target)
    elif not exchange(new, target):
        target.rename(new.parent / f"{_FORMER}{target.name}")
        new.rename(target)


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two files or folders in one step; whether this system and this file system can."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _locked(folder: Path) -> int:
    """A descriptor with a lock on a folder, which ends with this process. Some file systems have no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return os.open(folder.parent, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_left(left: Path, output_dir: Path) -> None:
    """Delete a folder unless a process works in it. What had a name that nothing has now gets it back."""
    try:
        descriptor = os.open(left, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for former in left.glob(f"{_FORMER}*"):
            target = output_dir / former.name.removeprefix(_FORMER)
            if not target.exists():
                former.rename(target)
        shutil.rmtree(left, ignore_errors=True)
    except OSError:
        return  # It is in use, or this process can't tell.
    finally:
        os.close(descriptor)


def signature_of(model: Any) -> Any | None:
    """The types that the exported model takes; None: those of the feed, because the model has no dense input layers."""
    functional = _functional(model)
    if functional is None:
        return None
    # As in Keras, an input with a batch size of its own takes batches of any size.
    return keras.tree.map_structure(
        lambda one: _with_name(tf.TensorSpec((None, *one.shape[1:]), one.dtype), one.name), functional._inputs_struct
    )


def as_inputs(model: Any, features: Any) -> Any:
    """What the feed gives, as the exported model takes it: as in Keras, an axis of size 1 may be missing."""
    functional = _functional(model)
    if functional is None:
        return features
    return keras.tree.pack_sequence_as(functional._inputs_struct, functional._standardize_inputs(features))


def named(model: Any, features: Any) -> Any:
    """The types that the feed gives, with the names under which clients of the served model give them."""
    if isinstance(features, Mapping):
        return {key: _with_name(spec, str(key)) for key, spec in features.items()}
    inputs = getattr(model, "inputs", None) or []
    if isinstance(features, (tuple, list)) and len(inputs) == len(features):
        return type(features)(_with_name(spec, one.name) for spec, one in zip(features, inputs, strict=True))
    if len(inputs) == 1:
        return _with_name(features, inputs[0].name)
    return features


def _functional(model: Any) -> Any | None:
    """The graph of layers that has the model's inputs; None if absent, or if they are sparse, ragged or optional."""
    functional = model._functional if isinstance(model, keras.Sequential) else model
    if not isinstance(functional, Functional):
        return None
    inputs = keras.tree.flatten(functional._inputs_struct)
    is_dense = not any(one.sparse or getattr(one, "ragged", False) for one in inputs)
    return functional if is_dense and not any(_is_optional(one) for one in inputs) else None


def _is_optional(one: Any) -> bool:
    return bool(getattr(one._keras_history.operation, "optional", False))


def _with_name(spec: Any, name: str) -> Any:
    if not isinstance(spec, tf.TensorSpec) or not _NAME.fullmatch(name):
        return spec
    return tf.TensorSpec(spec.shape, spec.dtype, name=name)
