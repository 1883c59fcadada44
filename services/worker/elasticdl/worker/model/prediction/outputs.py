"""A model's outputs as a prediction job writes them, after the processor of the model file, if it has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.batch import Batch
from elasticdl.worker.model.dense import Float32Array
from elasticdl.worker.model.runner import ModelRunner, TableRows
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.class_names import Classes
from elasticdl.worker.model.user.module import UserModule
from elasticdl.worker.ports import Outputs

_QUARTER, _HALF = 0.25, 0.5
DEFAULT_PROCESSOR = "PredictionOutputsProcessor"


@dataclass(slots=True, kw_only=True)
class ModelOutputs:
    """Computes the outputs of batches; ``processor``: an instance of the user's class; None if absent."""

    runner: ModelRunner
    processor: Any = None
    worker: int = 0
    _variables: tuple[Float32Array, tuple[Any, ...]] | None = None
    """The dense vector, and its variables as tensors: they do not change, and each batch needs them."""
    _thresholds: dict[int, float] = field(default_factory=dict)
    """Place of an output with one number for each record -> above which number it means the second class."""

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs of a model that gives a list of them; empty if they have none."""
        return tuple(getattr(self.runner.built.model, "output_names", None) or ())

    def outputs(self, batch: Batch, dense: Float32Array, rows: TableRows) -> Outputs:
        """The outputs of a batch as arrays, in the structure that the model gives, or what the processor returns.

        With the names of classes, where labels are texts or booleans, unless the processor returns something else.
        """
        if self._variables is None or self._variables[0] is not dense:
            self._variables = dense, self.runner.variables(dense)
        predictions = self.runner.predict(batch, self._variables[1], rows)
        if self.processor is not None:
            with user_code(self.runner.module.path, f"{type(self.processor).__name__}.process()"):
                processed = self.processor.process(predictions, self.worker)
            if processed is not None:
                return Outputs(values=processed)
        flat = zip(self.runner.module.classes, keras.tree.flatten(predictions), strict=False)
        return Outputs(
            values=predictions,
            classes={
                f"predicted_{one.column}": self._names(one, place, predictions, values)
                for place, (one, values) in enumerate(flat)
                if one is not None
            },
        )

    def _names(self, classes: Classes, place: int, predictions: Any, values: NDArray[Any]) -> NDArray[Any]:
        """The class of each record: the one with the largest number, or that on its side of the threshold."""
        if values.shape[1:] in ((), (1,)):
            if place not in self._thresholds:
                self._thresholds[place] = _threshold(self.runner.module, classes.output, predictions, place)
            numbers = (values.reshape(-1) > self._thresholds[place]).astype(np.int64)
        else:
            numbers = values.argmax(axis=-1)
        return np.array(classes.names, object)[numbers]


def _threshold(module: UserModule, output: str, predictions: Any, place: int) -> float:
    """0 if the loss takes the numbers of an output as logits, 0.5 if it takes them as probabilities.

    For the number 1/4 the loss with logits is smaller with the second class, and that with probabilities with the
    first one.
    """
    compiled = module.compiled if module.value("loss") is None else None
    if compiled is not None:  # Only the loss of this output: those of others may take labels of another form.
        of_output = compiled.loss_of(place, output)
        predictions = keras.tree.flatten(predictions)[place]
        place = 0
        if of_output is None:
            return _HALF
    else:
        of_output = module.required("loss")
    flat = [np.zeros_like(one[:1]) for one in keras.tree.flatten(predictions)]
    labels = [np.zeros((1, *one.shape[1:2][: one.shape[1:] == (1,)]), np.int64) for one in flat]
    flat[place] = np.full_like(flat[place], _QUARTER)

    def loss(number: int) -> float:
        labels[place] = np.full_like(labels[place], number)
        tensors = ([tf.constant(one) for one in each] for each in (labels, flat))
        given = (keras.tree.pack_sequence_as(predictions, each) for each in tensors)
        return float(np.mean(of_output(*given)))

    with user_code(module.path, f"{module.file.name_of('loss')}()"):
        return 0.0 if loss(1) < loss(0) else _HALF


def load_processor(module: UserModule, name: str) -> Any:
    """An instance of the processor's class.

    Args:
        name: of the class; empty: ``PredictionOutputsProcessor``, if the file defines it.

    Returns:
        None: there is none.

    Raises:
        UserError: there is no such class, or it has no method ``process``.
    """
    kind = module.function(name or DEFAULT_PROCESSOR)
    if kind is None and not name:
        return None
    if kind is None or not callable(getattr(kind, "process", None)):
        problem = "defines no class" if kind is None else "has no method process() in"
        raise UserError(
            f"{module.path} {problem} {name or DEFAULT_PROCESSOR}",
            hint="The class needs a method process(predictions, worker_id).",
        )
    with user_code(module.path, f"{name or DEFAULT_PROCESSOR}()"):
        return kind()


def serialized(record: Mapping[str, Sequence[Any]]) -> bytes:
    """A record as a serialised ``tf.train.Example``.

    Args:
        record: feature -> its values: all integers or booleans, all floats, or all texts or bytes.
    """
    features = {name: _feature(values) for name, values in record.items()}
    data: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return data


def _feature(values: Sequence[Any]) -> Any:
    first = values[0] if values else 0
    if isinstance(first, float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if isinstance(first, (str, bytes)):
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
