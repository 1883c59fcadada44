"""From a file's weights to what the ps read: matched with the new model by name, checked, and written to storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from elasticdl.layers.embedding import ROWS_SUFFIX
from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.layout import export_folder
from elasticdl.shared.exported.reading import read_dense, read_export, read_table
from elasticdl.shared.job.spec import InitialModel, SnapshotPart
from elasticdl.shared.model.initial_weights import WeightTable, signature_of, write_weights
from elasticdl.shared.model.manifests import read_manifest
from elasticdl.shared.model.matching import Match
from elasticdl.shared.model.placement import ALL
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.storage import open_store
from elasticdl.worker.model.build import make
from elasticdl.worker.model.embeddings.swap import Census
from elasticdl.worker.model.initial.files import Weights, read_keras_file, read_saved_model
from elasticdl.worker.model.initial.layer_numbers import UNKNOWN, renumbered_names
from elasticdl.worker.model.initial.variable_names import (
    EMBEDDINGS,
    class_names,
    named_variables,
    without_model_names,
)
from elasticdl.worker.model.runner import ModelRunner

KERAS_SUFFIX = ".keras"


def prepare(initial: InitialModel, runner: ModelRunner, storage: str) -> InitialModel:
    """Match the model that a job starts from with the job's own, and write the weights of a file to the storage.

    Returns:
        The trained model, with the note about what matched, and as a snapshot if it is a file.
    """
    mine = runner.signature()
    if initial.job:
        manifest = read_manifest(open_store(initial.parts[0].manifest), initial.parts[0].manifest)
        match = Match(new=mine, trained=ModelSignature.from_json(manifest.signature))
        return initial if initial.is_whole else replace(initial, note=_note(match, initial))
    if folder := export_folder(initial.file):
        return _of_export(initial, folder, mine, storage)
    is_keras_file = initial.file.endswith(KERAS_SUFFIX)
    if is_keras_file:
        census = Census(swap_bytes_min=0, plain=True)
        with_tables = partial(make, runner.module, runner.example, census, seed=runner.settings.seed)
        found = read_keras_file(initial.file, runner.module, runner.built.model, with_tables)
    else:
        found = read_saved_model(initial.file)
    names = list(_structural_names(runner) if is_keras_file else _built_names(runner))
    if not is_keras_file:
        expected = [other for one in names for other in one.others]
        in_file = renumbered_names(found, expected, class_names(runner.built.model))
        found = {in_file[name]: values for name, values in found.items()}
    renamed = _renamed(found, names, has_model_names=not is_keras_file)
    tables = {table.name for table in runner.tables if (rows := renamed.get(table.name)) is not None and rows.ndim == 2}
    trained = signature_of(
        {name: values.shape for name, values in renamed.items() if name not in tables},
        {name: (values.shape[0], values.shape[1]) for name, values in renamed.items() if name in tables},
    )
    match = Match(new=mine, trained=trained)
    dense = {name: values for name, values in renamed.items() if name not in tables}
    whole = {name: WeightTable.of(renamed[name]) for name in tables}
    return _written(initial, match, dense, whole, storage)


def _of_export(initial: InitialModel, folder: str, mine: ModelSignature, storage: str) -> InitialModel:
    """An export with tables in Parquet, whose rows are read a file at a time."""
    exported = read_export(folder)
    tables = {
        table.name: WeightTable(
            rows=table.input_dim,
            width=table.width,
            chunks=partial(read_table, folder, there, table.width),
            initializer=table.initializer,
        )
        for table, there in zip(exported.signature.tables, exported.tables, strict=True)
    }
    match = Match(new=mine, trained=exported.signature)
    return _written(initial, match, read_dense(folder, exported), tables, storage)


def _written(
    initial: InitialModel, match: Match, dense: Weights, tables: Mapping[str, WeightTable], storage: str
) -> InitialModel:
    """The model as a snapshot, with the note about what matched; only that is written."""
    note = _note(match, initial)

    def finite(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        if not np.isfinite(values).all():
            raise UserError(f"variable {name} in {initial.source} has values that are NaN or infinite")
        return values

    def checked(name: str, table: WeightTable) -> WeightTable:
        return replace(table, chunks=lambda: ((ids, finite(name, rows)) for ids, rows in table.chunks()))

    manifest_uri = write_weights(
        open_store(storage),
        storage,
        {name: finite(name, values) for name, values in dense.items() if name in match.taken},
        {name: checked(name, table) for name, table in tables.items() if name in match.taken},
    )
    return replace(initial, note=note, parts=(SnapshotPart(manifest=manifest_uri, partitions=ALL),))


def _note(match: Match, initial: InitialModel) -> str:
    if not match.taken:
        raise UserError(
            f"no variable of the model has the name and shape of one in {initial.source}. {match.differences}",
            hint="Give the layers of both models the same names.",
        )
    if initial.is_whole and not match.is_whole:
        raise UserError(
            f"the model file does not fit the model in {initial.source}. {match.differences}",
            hint="Give the model file, and the --model_params, with which the model was trained.",
        )
    return match.note(initial.text)


@dataclass(frozen=True, slots=True)
class _Names:
    """Under which names a variable or table of the new model may be in a file, the likeliest first."""

    name: str
    others: tuple[str, ...]


def _renamed(found: Weights, names: Sequence[_Names], *, has_model_names: bool) -> Weights:
    """A file's weights with the names of the new model where it has such a variable; the others keep theirs.

    Args:
        has_model_names: whether names in the file may begin with that of the model. A complete match comes first.
    """
    short = without_model_names(list(found)) if has_model_names else {}
    mine: dict[str, str] = {}
    for places in ({name: name for name in found}, {short[name]: name for name in short}):
        matched = set(mine.values())
        for one in names:
            place = next((places[other] for other in one.others if other in places), None)
            if place is not None and one.name not in matched:
                mine.setdefault(place, one.name)
    # A name that means another variable here must not match.
    taken = {one.name for one in names}
    return {mine.get(name, f"{name}{UNKNOWN}" if name in taken else name): values for name, values in found.items()}


def _structural_names(runner: ModelRunner) -> Iterator[_Names]:
    """Names in a ``.keras`` file."""
    variables = {
        id(variable): spec.name for variable, spec in zip(runner.dense.variables, runner.dense.specs, strict=True)
    }
    tables = {id(table.layer): table.spec.name for table in runner.built.tables}
    for name, one in named_variables(runner.built.model).items():
        if id(one) in variables:
            yield _Names(variables[id(one)], (name,))
        elif id(one) in tables:
            yield _Names(tables[id(one)], (name, *_combined(name.removesuffix(f"/{EMBEDDINGS}"))))


def _built_names(runner: ModelRunner) -> Iterator[_Names]:
    """Names in a SavedModel."""
    names: Mapping[str, tuple[str, ...]] = {spec.name: (spec.name,) for spec in runner.dense.specs}
    names = {**names, **{table.name: (f"{table.name}/{EMBEDDINGS}", *_combined(table.name)) for table in runner.tables}}
    short = without_model_names([others[0] for others in names.values()])
    for name, others in names.items():
        yield _Names(name, (*others, short[others[0]]))


def _combined(layer: str) -> tuple[str, ...]:
    """The names of the table of a layer with a combiner, which is a model in an exported one."""
    rows = f"{layer.rpartition('/')[2]}{ROWS_SUFFIX}/{EMBEDDINGS}"
    return (f"{layer}/{rows}", rows)
