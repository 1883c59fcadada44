"""The feed of a model file that defines none: each input of the model is the column of its name. See ADR 15."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.models import Functional

from elasticdl.shared.data.formats.csv_file import delimiter_hint
from elasticdl.shared.data.schema import Metadata
from elasticdl.shared.errors import UserError
from elasticdl.shared.words import did_you_mean, some_of
from elasticdl.shipping.own_steps import overrides
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.class_names import ClassNames, TextLabel
from elasticdl.worker.model.user.column_choice import ColumnChoice
from elasticdl.worker.model.user.column_inputs import keyed_inputs, stacked_input
from elasticdl.worker.model.user.columns import ColumnArrays

_DEFINE = "Or define feed_batch(records, mode, metadata) in the file."
_NAMES_MAX = 12
_TEXT = ("string", "binary")
_CLASSES = ("string", "bool")
"""Types of labels that are names of classes."""
_SCALARS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Inputs and outputs of a model, in the structures in which it takes and returns them.

    Attributes:
        inputs: a ``KerasTensor``, or a list or dict of them.
        output_names: of the outputs, in the order of ``keras.tree.flatten``: the key in a dict, else the layer's name.
        columns: key of an input -> its column, where the file says so; empty: inputs have the names of columns.
        has_labels: whether the model compares its outputs with labels. Without a loss, what ``add_loss`` adds is all.
        unlabelled: names of outputs that have neither a loss nor a metric, and so need no label.
        one_hot: names of outputs whose loss compares a number for each class.
    """

    inputs: Any
    outputs: Any
    output_names: tuple[str, ...]
    has_labels: bool = True
    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unlabelled: frozenset[str] = frozenset()
    one_hot: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: Any, data: Metadata, choice: ColumnChoice, path: Path, *, has_labels: bool = True) -> Ports:
        """Those of a model. One without input layers takes the columns that the user names as features.

        Raises:
            UserError: it is unclear which columns a model without input layers takes.
        """
        if isinstance(model, Functional):
            names = _keys(model.output) or tuple(model.output_names)
            return cls(inputs=model.input, outputs=model.output, output_names=names, has_labels=has_labels)
        if isinstance(model, keras.Sequential) and model.built:
            (inputs,), (outputs,), names = model.inputs, model.outputs, (model.layers[-1].name,)
            return cls(inputs=inputs, outputs=outputs, output_names=names, has_labels=has_labels)
        if not data.column_names:
            raise _without_columns(data, path)
        if choice.named_features:
            taken: Any = keyed_inputs(data, choice.named_features, path)
        else:
            taken = stacked_input(data, choice.features, choice.labels, path, others=choice.weight_columns)
        if not overrides(model, "call"):
            raise UserError(
                f"{path}: {type(model).__name__} has no call() that takes columns", hint=f"Give it one. {_DEFINE}"
            )
        with user_code(path, "the model"):
            outputs = model(taken)
        names = _keys(outputs) or tuple(f"output_{place}" for place, _ in enumerate(keras.tree.flatten(outputs)))
        keyed = choice.named_features
        return cls(inputs=taken, outputs=outputs, output_names=names, has_labels=has_labels, columns=keyed)


class DefaultFeed:
    """A ``feed_batch`` that finds the model's inputs and labels among the columns of the data.

    An input takes the column of its name. The only input of a model, of shape (None, N), may also take N columns, which
    are stacked: those that the user chooses, or all but the label in the order of the data. Numbers are cast to the
    input's type.

    Args:
        mode: ``train``, ``evaluate`` or ``predict``, which needs no labels.
        choice: names columns. Without labels in it, they are the columns with the names of the outputs, else the only
            column that is no input.
        classes: of labels that are texts or booleans, once they are known.

    Raises:
        UserError: a column is missing or of another type, or it is unclear which one is the label.
    """

    def __init__(
        self,
        ports: Ports,
        data: Metadata,
        mode: str,
        choice: ColumnChoice,
        path: Path,
        classes: ClassNames = (),
    ) -> None:
        self._ports = ports
        self._classes = classes
        self._types = dict(zip(data.column_names, data.column_types, strict=True))
        self._path = path
        if not self._types:
            raise _without_columns(data, path)
        for name in choice.labels if mode != "predict" else ():
            self._require(name, f"{choice.labels_from}: {name!r}")
        self._columns: Sequence[tuple[Any, tuple[str, ...]]]
        if ports.columns:
            self._columns = [(one, (ports.columns[key],)) for key, one in _named(ports.inputs)]
        elif choice.features and len([*_named(ports.inputs)]) == 1:
            self._columns = self._chosen(choice.features)
        else:
            self._columns = self._inputs(set(choice.no_inputs))
        self._labels = self._find_labels(choice) if mode != "predict" else ()
        self._weights = self._find_weights(choice, mode)
        self._check_types()
        if mode == "evaluate":
            self._check_classes()
        self._numbered = {
            place: f"{self._labels[place]} (class of {one.output})"
            for place, one in enumerate(classes if self._labels else ())
            if one is not None and self._labels[place]
        }
        """Place of an output -> the column with the numbers of its classes."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # It can't, and warns about it.
    def __call__(self, records: Mapping[str, Any], mode: str, _metadata: Metadata) -> Any:
        """See ``feed_batch`` in ``module.py``."""
        taken = [self._features(records, one, names) for one, names in self._columns]
        features = keras.tree.pack_sequence_as(self._ports.inputs, taken)
        if mode == "predict":
            return features
        outputs = keras.tree.flatten(self._ports.outputs)
        if not self._ports.has_labels:
            return features, tf.zeros(tf.shape(keras.tree.flatten(features)[0])[:1])
        if len(self._labels) > len(outputs):
            labels: Any = tf.stack([_cast(records[name], "float32") for name in self._labels], axis=1)
        else:
            labels = self._pack([self._label(records, place, one) for place, one in enumerate(outputs)])
        if not self._weights:
            return features, labels
        weights = [_cast(records[name], "float32") if name else None for name in self._weights]
        return features, labels, weights[0] if len(weights) == 1 else self._pack(weights)

    def numbered(self, records: ColumnArrays) -> ColumnArrays:
        """Records whose labels are numbers, in columns of their own: a label may be an input, too.

        Raises:
            RecordError: a label is no class of the model.
        """
        if not self._numbered:
            return records
        found = {}
        for place, name in self._numbered.items():
            one, values = self._classes[place], records[self._labels[place]]
            assert one is not None and isinstance(values, np.ndarray)
            found[name] = one.numbers(values)
        return {**records, **found}

    @property
    def text_labels(self) -> tuple[TextLabel | None, ...]:
        """The label of each output that is a text or a boolean; None: it is a number."""
        outputs = keras.tree.flatten(self._ports.outputs)
        if len(self._labels) > len(outputs):
            return ()
        return tuple(
            TextLabel(output=name, column=label, is_bool=self._types[label] == "bool", shape=tuple(one.shape[1:]))
            if label and self._types[label] in _CLASSES
            else None
            for name, label, one in zip(self._ports.output_names, self._labels, outputs, strict=False)
        )

    def _pack(self, values: Sequence[Any]) -> Any:
        """The tensors of the outputs in the structure of the outputs; None: the model does not look at it."""
        records = tf.shape(next(one for one in values if one is not None))[:1]
        # A traced function takes no None among its tensors.
        filled = [tf.zeros(records) if one is None else one for one in values]
        return keras.tree.pack_sequence_as(self._ports.outputs, filled)

    def describe(self) -> str:
        """Which columns are inputs and labels, for people."""
        shown = some_of([name for _, names in self._columns for name in names], _NAMES_MAX)
        label = f"; label: {', '.join(filter(None, self._labels))}" if self._labels else ""
        for place in self._numbered:
            one = self._classes[place]
            assert one is not None
            label += f"; classes of {one.column}: {some_of(one.names, _NAMES_MAX)}"
        weight = f"; sample weights: {', '.join(filter(None, self._weights))}" if self._weights else ""
        return f"inputs of the model: {shown}{label}{weight}"

    # --- which columns ---------------------------------------------------------------------------------------------

    def _chosen(self, features: Sequence[str]) -> Sequence[tuple[Any, tuple[str, ...]]]:
        """The same as ``_inputs`` for the only input of a model, if the user names its columns."""
        for name in features:
            self._require(name, f"features in {self._path}: {name!r}")
        ((name, one),) = _named(self._ports.inputs)
        if len(features) > 1 and (len(one.shape) != 2 or one.shape[1] != len(features)):
            raise UserError(
                f"{self._path}: features has {len(features)} columns, and input {name!r} of the model has the shape "
                f"{one.shape}",
                hint=f"Give the input the shape ({len(features)},).",
            )
        return [(one, tuple(features))]

    def _inputs(self, labels: set[str]) -> Sequence[tuple[Any, tuple[str, ...]]]:
        """(input, its columns) for each input."""
        inputs = [*_named(self._ports.inputs)]
        if len(inputs) == 1 and (name := inputs[0][0]) not in self._types:
            (_, one), rest = inputs[0], tuple(each for each in self._types if each not in labels)
            if len(one.shape) == 2 and one.shape[1] == len(rest):
                return [(one, rest)]
            if len(shaped := [each for each in rest if self._has_shape(each, one)]) == 1:
                return [(one, (shaped[0],))]
            raise UserError(
                f"{self._path}: input {name!r} of the model is no column of the data, and its shape {one.shape} does "
                f"not take {len(rest)} columns: {', '.join(rest)}",
                hint="Choose columns with features = [...] in the file and the label with --label, or name a "
                f"keras.Input after each column. {_DEFINE}",
            )
        for name, _ in inputs:
            self._require(name, f"{self._path}: input {name!r} of the model")
        return [(one, (name,)) for name, one in inputs]

    def _has_shape(self, name: str, one: Any) -> bool:
        """Whether the values of a column are arrays of the shape of an input."""
        shape = self._types[name].partition("[")[2].rstrip("]")
        return bool(shape) and tuple(map(int, shape.split("x"))) == tuple(one.shape[1:])

    def _find_labels(self, choice: ColumnChoice) -> tuple[str, ...]:
        """The column of each output's label, empty for one that needs none; or several columns of a single output."""
        outputs, named = self._ports.output_names, choice.labels
        if not self._ports.has_labels:
            return ()
        if named and len(outputs) == 1 and keras.tree.flatten(self._ports.outputs)[0].shape[1:] == (len(named),):
            return named
        compared = self._compared
        if named and len(named) not in (len(outputs), len(compared)):
            have = f"{', '.join(compared)} {'has' if len(compared) == 1 else 'have'}"
            alone = f", of which only {have} a loss" if len(compared) < len(outputs) else ""
            raise UserError(
                f"{choice.labels_from} names {len(named)} columns, and the model has {len(outputs)} outputs: "
                f"{', '.join(outputs)}{alone}",
                hint="Name one column for each output, in the order of the outputs. A single output of shape (N,) may "
                "take N columns.",
            )
        if named:
            return self._by_output(named)
        if all(name in self._types for name in compared):
            return self._by_output(compared)
        used = {name for _, names in self._columns for name in names} | set(choice.weight_columns)
        left = [name for name in self._types if name not in used]
        if len(left) == len(compared) == 1:
            return self._by_output(left)
        raise UserError(
            f"it is not clear which column is the label: {', '.join(left) or 'all columns are inputs of the model'}",
            hint=f'Give --label=COLUMN, or write label = "COLUMN" in the file. {_DEFINE}',
        )

    def _find_weights(self, choice: ColumnChoice, mode: str) -> tuple[str, ...]:
        """The columns of the sample weights. As in ``fit``, evaluations count them if their data has them."""
        columns = choice.weight_columns
        if mode == "predict" or (mode == "evaluate" and not all(name in self._types for name in columns)):
            return ()
        for name in columns:
            self._require(name, f"{choice.weights_from}: {name!r}")
            if self._types[name] not in _SCALARS:
                raise UserError(
                    f"{choice.weights_from}: column {name!r} is {self._types[name]}, and sample weights are numbers",
                    hint=f"If the values are numbers: --column_types={name}=float32. {_DEFINE}",
                )
        outputs, compared = self._ports.output_names, self._compared
        keyed = choice.named_weights if not choice.weights else {}
        if keyed and set(compared) <= set(keyed) <= set(outputs):
            return tuple(keyed.get(name, "") for name in outputs)
        if keyed or len(columns) not in (0, 1, len(outputs), len(compared)):
            raise UserError(
                f"{choice.weights_from} names {', '.join(keyed or columns)}, and the model has the outputs "
                f"{', '.join(outputs)}",
                hint="Name one column for all outputs, or one for each of them.",
            )
        return columns if len(columns) < 2 else self._by_output(columns)

    @property
    def _compared(self) -> Sequence[str]:
        """The outputs that have a loss or a metric."""
        return [name for name in self._ports.output_names if name not in self._ports.unlabelled]

    def _by_output(self, columns: Sequence[str]) -> tuple[str, ...]:
        """A column for each output, empty where it needs none, of columns for all outputs or for ``_compared``."""
        outputs = self._ports.output_names
        if len(columns) == len(outputs):
            return tuple(columns)
        chosen = dict(zip(self._compared, columns, strict=True))
        return tuple(chosen.get(name, "") for name in outputs)

    def _require(self, name: str, what: str) -> None:
        if name in self._types:
            return
        hint = did_you_mean(name, self._types)
        if len(self._types) == 1 and (other := delimiter_hint(next(iter(self._types)), "")):
            hint = f"{other}."
        hint = f"{hint} Columns: {', '.join(self._types)}. {_DEFINE}".lstrip()
        raise UserError(f"{what} is no column of the data", hint=hint)

    def _check_types(self) -> None:
        for one, names in self._columns:
            for name in names:
                is_text = self._types[name].startswith(_TEXT) or self._types[name].startswith("list<string")
                if is_text != (one.dtype == "string"):
                    raise UserError(
                        f"column {name!r} is {self._types[name]}, and its input of the model is {one.dtype}",
                        hint=f"Change the dtype of the keras.Input, or read the column as another type: "
                        f"--column_types={name}=TYPE. {_DEFINE}",
                    )
        for name in filter(None, self._labels):
            kind = self._types[name]
            is_one = kind == "string" and len(self._labels) <= len(self._ports.output_names)
            if not is_one and (kind.startswith(_TEXT) or kind.startswith("list<string")):
                raise UserError(
                    f"label {name!r} is {kind}, and labels are numbers, or one text for each record and output",
                    hint=f"If the values are numbers: --column_types={name}=int64. {_DEFINE}",
                )

    def _check_classes(self) -> None:
        """Compare the labels of an evaluation with those of the training."""
        for label, one in zip(self.text_labels, self._classes or (None,) * len(self._labels), strict=False):
            if label is not None and one is None and not label.is_bool:
                raise UserError(
                    f"label {label.column!r} is text, and the model was trained with numbers as labels",
                    hint=f"If the values are numbers: --column_types={label.column}=int64. {_DEFINE}",
                )
        for name, one in zip(self._labels, self._classes, strict=False):
            if one is not None and name and self._types[name] not in _CLASSES:
                raise UserError(
                    f"label {name!r} is {self._types[name]}, and the model was trained with texts: "
                    f"{some_of(one.names, _NAMES_MAX)}",
                    hint=f"Read the column as text: --column_types={name}=string.",
                )

    # --- their values ----------------------------------------------------------------------------------------------

    def _label(self, records: Mapping[str, Any], place: int, output: Any) -> Any:
        """The label of an output; None: it needs none."""
        if place not in self._numbered:
            return _label(records[self._labels[place]], output) if self._labels[place] else None
        numbers = records[self._numbered[place]]
        if self._ports.output_names[place] in self._ports.one_hot and output.shape[1:] not in ((), (1,)):
            return tf.one_hot(numbers, output.shape[1])
        return _label(numbers, output)

    def _features(self, records: Mapping[str, Any], one: Any, names: Sequence[str]) -> Any:
        if len(names) > 1 or (len(one.shape) == 2 and one.shape[1] == 1 and records[names[0]].shape.rank == 1):
            return tf.stack([_cast(records[name], one.dtype) for name in names], axis=1)
        values = _cast(records[names[0]], one.dtype)
        if isinstance(values, tf.RaggedTensor) and one.shape[1:] == (None,):
            # Recurrent layers fail without any step, which a batch of empty lists would have.
            padded = values.to_tensor()
            values = tf.pad(padded, [[0, 0], [0, tf.cast(tf.shape(padded)[1] == 0, tf.int32)]])
        is_ragged = isinstance(values, tf.RaggedTensor) and not getattr(one, "ragged", False)
        if is_ragged or not values.shape.is_compatible_with(one.shape):
            raise UserError(
                f"{self._path}: column {names[0]!r} has values of shape {tuple(values.shape[1:])}, and its input of "
                f"the model takes {tuple(one.shape[1:])}",
                hint=_DEFINE,
            )
        return values


def _without_columns(data: Metadata, path: Path) -> UserError:
    return UserError(
        f"{path} defines neither feed() nor feed_batch(), and {data.format} data has no columns",
        hint="Define feed_batch(records, mode, metadata) in the file.",
    )


def _keys(structure: Any) -> tuple[str, ...]:
    """The keys of a dict of outputs, in the order of ``keras.tree.flatten``; empty for anything else."""
    if not isinstance(structure, Mapping):
        return ()
    return tuple(str(path[-1]) for path, _ in keras.tree.flatten_with_path(structure))


def _named(structure: Any) -> Iterator[tuple[str, Any]]:
    """(name, input) for each input: the key in a dict, else the name of the input layer."""
    for path, one in keras.tree.flatten_with_path(structure):
        yield (path[-1] if path and isinstance(path[-1], str) else one.name), one


def _cast(values: Any, dtype: str) -> Any:
    return values if dtype == "string" else tf.cast(values, dtype)


def _label(values: Any, output: Any) -> Any:
    """Labels with a last dimension of 1 if the output has one: a loss must not broadcast the one against the other."""
    if values.dtype == tf.float64:
        values = tf.cast(values, tf.float32)
    is_flat = len(output.shape) == 2 and output.shape[1] == 1 and values.shape.rank == 1
    return values[:, tf.newaxis] if is_flat else values
