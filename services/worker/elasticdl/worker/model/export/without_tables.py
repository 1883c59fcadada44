"""The trained model as a ``.keras`` file without its tables, for an export with tables in Parquet."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from elasticdl.layers import serving
from elasticdl.layers.exported import LoadedTables, load_without_tables
from elasticdl.layers.served import ServedEmbedding
from elasticdl.shared import words
from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.job.spec import ExportTables, JobSpec
from elasticdl.shared.storage import to_uri
from elasticdl.worker.model.build import make
from elasticdl.worker.model.dense import Float32Array
from elasticdl.worker.model.embeddings.swap import Census
from elasticdl.worker.model.export.comparison import compare_files, predictions_of
from elasticdl.worker.model.export.export import disk_errors_of
from elasticdl.worker.model.export.failures import writing
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.calls import without_colours
from elasticdl.worker.model.user.class_names import write_classes
from elasticdl.worker.ports import Ids

_KNOWN_MODULES = ("keras", "builtins", "elasticdl")
"""Keras finds what is its own; layers of this package are replaced by Keras' own in the file."""


def choose_tables(runner: ModelRunner, spec: JobSpec, *, needs_whole_models: bool) -> tuple[ExportTables, str]:
    """Where the tables of the exported model will be.

    Args:
        needs_whole_models: the job also writes files that hold the whole model.

    Returns:
        ``MODEL`` or ``PARQUET``, and a sentence for the user; empty if there is nothing to say.

    Raises:
        UserError: tables in Parquet are asked for, and the model or the job does not allow it.
    """
    choice, signature = spec.export_tables, runner.signature()
    is_large = not signature.fits(spec.limits.export_bytes_max)
    if choice is ExportTables.MODEL or not spec.output or not runner.tables:
        return ExportTables.MODEL, ""
    if choice is ExportTables.AUTO and (needs_whole_models or not is_large):
        return ExportTables.MODEL, ""
    if spec.best and spec.best.save:
        raise UserError(
            f"{runner.module.path}: the best model is saved as a whole, so tables can't be exported as Parquet files",
            hint="Run without --save_best (or EarlyStopping's restore_best_weights), or with --export_tables=model.",
        )
    check_without_tables(runner)
    size = signature.weights_bytes
    reason = f"the model would be {words.size(size)}" if size else "a table has no input_dim"
    why = f", because {reason}" if choice is ExportTables.AUTO else ""
    return ExportTables.PARQUET, f"tables are exported as Parquet files{why}; elasticdl.layers.load_model() reads them"


def check_without_tables(runner: ModelRunner) -> None:
    """Refuse before training a model whose file could not be loaded without its tables.

    Raises:
        UserError: a served ``keras.layers.Embedding`` is made by the user's own code while the file is loaded.
    """
    described = set(_served_layers(configuration(runner)))
    for table in runner.built.tables:
        if isinstance(table.layer, ServedEmbedding) and table.layer.name not in described:
            raise UserError(
                f"{runner.module.path}: embedding {table.spec.name} is made in a class of the model file, so the model "
                "can't be exported without its table",
                hint="Use elasticdl.layers.Embedding(output_dim, input_dim) in place of keras.layers.Embedding, or "
                "--export_tables=model.",
            )


def _served_layers(value: Any) -> Iterator[str]:
    """Names of the layers without tables that Keras makes from a configuration."""
    match value:
        case {"class_name": str(kind), "config": {"name": str(name)}} if kind == ServedEmbedding.__name__:
            yield name
        case dict():
            for part in value.values():
                yield from _served_layers(part)
        case list() | tuple():
            for part in value:
                yield from _served_layers(part)
        case _:
            pass


def write_without_tables(runner: ModelRunner, dense: Float32Array, file: Path) -> list[str]:
    """Write the model, with numbers in the places of the tables that the ps serve, and compare it with the trained one.

    Returns:
        What the user has to know if the file doesn't load.

    Raises:
        UserError: the file can't be written, or what was written predicts something else than the trained model.
    """
    census = Census(swap_bytes_min=runner.settings.swap_bytes_min, kept=dict(runner.built.census.kept))
    model = make(runner.module, runner.example, census, seed=runner.settings.seed)
    if [one.shape for one in model.weights] != [one.shape for one in runner.built.model.weights]:
        raise InvariantError("the model made for export has other variables than the one that was trained")
    for number, table in enumerate(runner.built.tables):
        census.layers[table.number].table_number = number
    runner.dense.assign(model.weights, dense)
    path = runner.module.path
    with writing(path, file.name), disk_errors_of(file.parent):
        model.save(file)
        write_classes(runner.module.classes, file)
    if runner.example.labels is None:
        return []
    # The file has no rows, so any rows show whether it computes the same.
    tables = LoadedTables([_Waves(table.width) for table in runner.tables])
    tables.are_loaded = True

    def loaded() -> Any:
        again = LoadedTables([_Waves(table.width) for table in runner.tables])
        names = {name: value for name, value in vars(runner.module.module).items() if callable(value)}
        return load_without_tables(to_uri(file), again, names, safe_mode=False)(runner.example.features, training=False)

    widths = {table.name: table.width for table in runner.tables}
    computed = predictions_of(runner, dense, lambda name, ids: waves(ids, widths[name]))
    with serving.looking_up(tables), writing(path, f"and comparing {file.name}"):
        problems = compare_files(runner, model, computed, {file.name: loaded})
    return [f"elasticdl.layers.load_model() can't load {name}: {problem}" for name, problem in problems.items()]


def waves(ids: Ids, width: int) -> Float32Array:
    """Numbers from -1 to 1 that stand for rows, float32 (ids, width)."""
    return np.asarray(np.sin(ids[:, np.newaxis] + np.arange(width)), np.float32)


@dataclass(frozen=True, slots=True)
class _Waves:
    """Stands for a table."""

    width: int

    def rows(self, ids: Ids) -> Float32Array:
        """Ids int64[n] -> float32[n, width]."""
        return waves(ids, self.width)


def configuration(runner: ModelRunner) -> Any:
    """The model as the file will describe it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # The file's own warnings come when it is written.
            return keras.saving.serialize_keras_object(runner.built.model)
    except (NotImplementedError, TypeError, ValueError) as error:
        reason = " ".join(without_colours(str(error)).split())
        raise UserError(
            f"{runner.module.path}: the model can't be written as model.keras: {reason}",
            hint="Give the class a get_config(), or run without --output and ModelCheckpoint.",
        ) from error


def loading_notes(runner: ModelRunner) -> list[str]:
    """Lines for the worker's start: what has to be done so that the file loads elsewhere; none where it just does."""
    found = list(dict.fromkeys(_strangers(configuration(runner))))
    notes = []
    if names := [name for name in found if name]:
        be, them = ("is", "it") if len(names) == 1 else ("are", "them")
        notes.append(
            f"model.keras will not load elsewhere, as {', '.join(names)} {be} not registered with Keras: put "
            f"@keras.saving.register_keras_serializable() above {them} and import the model file before loading, "
            "or use saved_model, which needs neither"
        )
    if "" in found:
        notes.append(
            "model.keras holds a lambda: it loads with safe_mode=False, if the lambda uses nothing but its arguments. "
            "saved_model always loads"
        )
    return notes


def _strangers(value: Any) -> Iterator[str]:
    """Names of classes and functions that Keras can't find by itself; an empty one for a lambda."""
    match value:
        case {"class_name": "__lambda__"}:
            yield ""
        case {"class_name": "function", "config": str(name)} if not keras.saving.get_registered_object(name):
            yield f"{name}()"
        case {"class_name": str(name), "module": str(module), "registered_name": str(registered)} if module.partition(
            "."
        )[0] not in _KNOWN_MODULES and not keras.saving.get_registered_object(registered):
            yield name
    match value:
        case dict():
            for part in value.values():
                yield from _strangers(part)
        case list() | tuple():
            for part in value:
                yield from _strangers(part)
        case _:
            pass
