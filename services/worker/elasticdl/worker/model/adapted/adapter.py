"""Which process of a job adapts a layer, and how the others get its state."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.data.ragged import ColumnValues, Ragged
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store
from elasticdl.shared.words import did_you_mean
from elasticdl.worker.model.adapted.states import (
    classes_in_state,
    encode_state,
    ends_with_empty_word,
    is_finite,
    key_of,
    set_state,
)
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.class_names import ClassNames, LabelEncoder

_FOLDER = "adapted"
_POLL_S = 0.05
_TEXT_LAYERS = (keras.layers.StringLookup, keras.layers.TextVectorization)
_NUMBER_LAYERS = (keras.layers.Normalization, keras.layers.Discretization, keras.layers.IntegerLookup)

Missing = Callable[[str, Any, tuple[str, ...]], str]
"""(key, layer, columns) -> URI of a state that the process does not know yet."""
ColumnBlocks = Callable[[], Iterator[Mapping[str, ColumnValues]]]
"""Reads all records of the training data once: the columns of some records at a time, in the order of the data."""


class JobAdapter:
    """Gives layers their states, each an object in the job's storage.

    Args:
        known: URIs of the states that the job was planned with.
        missing: finds the state of a layer that is not among them.
    """

    def __init__(self, path: Path, known: Sequence[str], missing: Missing) -> None:
        self._path = path
        self._missing = missing
        self._uris = {_key_in(uri): uri for uri in known}
        self._states: dict[str, bytes] = {}
        self.adapted: dict[str, None] = {}
        """What was adapted, as a text for people, in the order of the calls; a set."""

    @property
    def uris(self) -> tuple[str, ...]:
        """URIs of all states so far."""
        return tuple(self._uris.values())

    def adapt(self, layer: Any, columns: tuple[str, ...]) -> None:
        """Set a layer's state; see ``elasticdl.layers.adapt``."""
        if not callable(getattr(layer, "adapt", None)):
            raise UserError(f"{self._path}: adapt() is called with {_shown(layer)}, which has no method adapt()")
        if isinstance(layer, keras.utils.FeatureSpace):
            columns = columns or tuple(layer.features)
        self._set(layer, columns)
        self.adapted[f"{_shown(layer)} to {', '.join(columns)}"] = None

    def learn_classes(self, encoder: LabelEncoder) -> ClassNames:
        """The classes of the labels, as an adapted layer's state. ``UserError`` if they don't fit or are lost."""
        self._set(encoder, ())
        return encoder.classes

    @property
    def trained_classes(self) -> ClassNames:
        """The classes among the states that the job was planned with; empty if absent."""
        return next(filter(None, (classes_in_state(self._state(key)) for key in self._uris)), ())

    def _set(self, layer: Any, columns: tuple[str, ...]) -> None:
        key = key_of(layer, columns)
        if key not in self._uris:
            self._uris[key] = self._missing(key, layer, columns)
        set_state(layer, self._state(key))

    def _state(self, key: str) -> bytes:
        if key not in self._states:
            self._states[key] = _load(self._uris[key])
        return self._states[key]

    def refuse_file(self, file: str) -> None:
        """Refuse to start from a file: its weights were trained with other states than the adapted layers have."""
        if self.adapted:
            raise UserError(
                f"{self._path} adapts {next(iter(self.adapted))}, and the weights in {file} were trained with the "
                "state that the layer had then",
                hint="Start from the job that trained it: --initial_model=JOB. Or set the state in the model file.",
            )


class ReaderAdapter:
    """Refuses to adapt a layer while a model file is imported whose reader has to read the data first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def adapt(self, layer: Any, columns: tuple[str, ...]) -> None:
        """Refuse."""
        raise UserError(
            f"{_call(self._path, layer, columns)} is called while the file is imported, before its reader can be used",
            hint="Call adapt() in the function that makes the model.",
        )


class ExportedModelAdapter:
    """Leaves layers as they are: the model comes from a file that holds their states."""

    def adapt(self, layer: Any, columns: tuple[str, ...]) -> None:
        """Do nothing."""


def adapt_to(
    path: Path, storage: str, types: Mapping[str, str], blocks: ColumnBlocks, earlier: Sequence[str] = ()
) -> Missing:
    """Adapts a layer to the training data, and saves its state.

    Args:
        earlier: URIs of the states of the trained model that the job starts from: its weights fit no other states.
    """
    known = {_key_in(uri): uri for uri in earlier}

    def adapted(key: str, layer: Any, columns: tuple[str, ...]) -> str:
        state = _load(known[key]) if key in known else learned(layer, columns)
        uri = join(storage, _FOLDER, f"{key}-{hashlib.sha256(state).hexdigest()}")
        open_store(uri).write(uri, state)
        return uri

    def learned(layer: Any, columns: tuple[str, ...]) -> bytes:
        if isinstance(layer, LabelEncoder):
            layer.adapt(blocks)
            return encode_state(layer)
        where = _call(path, layer, columns)
        _check_columns(where, layer, columns, types)
        data = ColumnDataset(blocks)
        is_space = isinstance(layer, keras.utils.FeatureSpace)
        try:
            with user_code(path, f"adapt() of {_shown(layer)}"):
                layer.adapt(data.named(columns) if is_space else data.stacked(columns))
        except UserError:
            if data.error is not None:
                raise data.error from None
            raise
        if not is_finite(layer):
            raise UserError(
                f"{where}: the layer learned NaN or infinite numbers, because values are missing or too large",
                hint=f"Give missing numbers a value, such as --fill_missing={columns[0]}=0.",
            )
        if ends_with_empty_word(layer):
            fills = ",".join(f"{name}=unknown" for name in columns if types[name] == "string")
            raise UserError(
                f"{where}: some values are empty, and the empty text is the last word of the vocabulary, which Keras "
                "loses when it loads a model",
                hint=f"Give empty values a word: --fill_missing {fills}. Or make them the mask: mask_token=''.",
            )
        return encode_state(layer)

    return adapted


def wait_for(storage: str) -> Missing:
    """Waits until another process, which makes the model at the same time, has adapted a layer.

    That process ends this one when it fails.
    """

    def awaited(key: str, _layer: Any, _columns: tuple[str, ...]) -> str:
        prefix = join(storage, _FOLDER, f"{key}-")
        store = open_store(storage)
        while (found := next(store.list(prefix), None)) is None:
            time.sleep(_POLL_S)
        return found.uri

    return awaited


def refuse_missing(path: Path) -> Missing:
    """Refuses a layer whose state is not known: the job has been planned."""

    def refused(_key: str, layer: Any, columns: tuple[str, ...]) -> str:
        raise UserError(
            f"{_call(path, layer, columns)} was not called when the job was planned, so the layer has no state",
            hint="Call adapt() with the same layers and columns each time that the model is made.",
        )

    return refused


def _check_columns(where: str, layer: Any, columns: tuple[str, ...], types: Mapping[str, str]) -> None:
    if not types:
        raise UserError(
            f"{where}: the training data has no columns, because it is TFRecord data",
            hint="Call layer.adapt(values) with values of your own.",
        )
    if getattr(layer, "input_mean", None) is not None:
        raise UserError(f"{where}: the layer was given its mean and variance, so there is nothing to adapt")
    if not columns:
        raise UserError(f"{where}: no column is given", hint=f"Columns of the data: {', '.join(types)}.")
    for name in columns:
        if name not in types:
            hint = f"{did_you_mean(name, types)} Columns: {', '.join(types)}.".lstrip()
            raise UserError(f"{where}: {name!r} is no column of the data", hint=hint)
        is_text = types[name] == "string"
        if (isinstance(layer, _TEXT_LAYERS) and not is_text) or (isinstance(layer, _NUMBER_LAYERS) and is_text):
            needed, kind = ("numbers", "float64") if is_text else ("text", "string")
            raise UserError(
                f"{where}: column {name!r} is {types[name]}, and the layer takes {needed}",
                hint=f"Choose another layer, or read the column as {kind}: --column_types={name}={kind}.",
            )


def _load(uri: str) -> bytes:
    try:
        state = open_store(uri).read(uri)
    except ObjectNotFoundError as error:
        raise UserError(
            f"{display(uri)}, the state of an adapted layer, does not exist any more",
            hint="Start a new job, which adapts the layer again.",
        ) from error
    if hashlib.sha256(state).hexdigest() != uri.rpartition("-")[2]:
        raise UserError(
            f"{display(uri)}, the state of an adapted layer, is damaged",
            hint="Start a new job, which adapts the layer again.",
        )
    return state


def _key_in(uri: str) -> str:
    return uri.rpartition("/")[2].partition("-")[0]


def _call(path: Path, layer: Any, columns: tuple[str, ...]) -> str:
    """A call of ``adapt`` in a model file, for errors."""
    return f"{path}: adapt({', '.join((_shown(layer), *map(repr, columns)))})"


def _shown(layer: Any) -> str:
    name = getattr(layer, "name", "")
    return f"{type(layer).__name__} {name!r}" if name else type(layer).__name__


@dataclass(slots=True)
class ColumnDataset:
    """Datasets of columns.

    Attributes:
        error: what reading has raised. TensorFlow raises an error of its own, with the text of this one.
    """

    blocks: ColumnBlocks
    error: Exception | None = field(default=None, init=False)

    def stacked(self, columns: tuple[str, ...]) -> Any:
        """A dataset of batches (records, columns); see ``elasticdl.layers.adapt``."""
        return self._dataset(lambda block: _stacked([block[name] for name in columns]))

    def named(self, columns: tuple[str, ...]) -> Any:
        """A dataset of dicts: column -> batch (records, 1)."""
        return self._dataset(lambda block: {name: _stacked([block[name]]) for name in columns})

    def _dataset(self, batch: Callable[[Mapping[str, ColumnValues]], Any]) -> Any:
        first = batch(next(self.blocks()))
        signature = tf.nest.map_structure(lambda values: tf.TensorSpec([None, *values.shape[1:]], _type(values)), first)

        def generate() -> Iterator[Any]:
            try:
                yield from map(batch, self.blocks())
            except Exception as error:
                self.error = error
                raise

        return tf.data.Dataset.from_generator(generate, output_signature=signature)


def _stacked(columns: list[ColumnValues]) -> NDArray[Any]:
    arrays = [column.values if isinstance(column, Ragged) else column for column in columns]
    values = np.stack(arrays, 1) if len(arrays) > 1 else arrays[0]
    values = values.reshape(len(values), -1)
    # A generator has to give text as bytes.
    return tf.constant(values.tolist(), tf.string, values.shape).numpy() if _type(values) == tf.string else values


def _type(values: NDArray[Any]) -> Any:
    return tf.string if values.dtype.kind in "OSU" else tf.as_dtype(values.dtype)
