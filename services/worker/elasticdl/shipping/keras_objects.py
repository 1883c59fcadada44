"""How objects of Keras are taken apart and put together again, attribute by attribute.

Keras' own serialisation needs a ``get_config()`` of every class and a constructor that takes it. Classes of scripts
have neither. Both processes run the same Keras, so an object can travel as what it is: its class, and its attributes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.saving.keras_saveable import KerasSaveable  # Keras has no public names for these.
from keras.src.saving.serialization_lib import SerializableDict
from keras.src.trainers.trainer import Trainer
from keras.src.utils.backend_utils import DynamicBackend
from keras.src.utils.tracking import TrackedDict, TrackedList, TrackedOrderedDict, TrackedSet, Tracker

from elasticdl.shared.errors import UserError
from elasticdl.shipping import graph, held_datasets

Reduced = tuple[Any, ...]
_TRACKED = (TrackedList, TrackedDict, TrackedOrderedDict, TrackedSet)
"""Collections of Keras that watch what is put into them."""
_LOCKS = {type(threading.Lock()): threading.Lock, type(threading.RLock()): threading.RLock}
_OF_ONE_PROCESS = ("_inbound_nodes", "_outbound_nodes")
"""Attributes of layers that are made again: the graph that they are part of."""
_OF_FIT = (
    "train_function", "test_function", "predict_function", "_distribute_strategy", "history", "_eval_epoch_iterator",
    "_losses_override",
)  # fmt: skip
_OF_COMPILE = (
    "_compile_loss", "_compile_config", "loss", "compiled", "optimizer", "steps_per_execution", "_jit_compile",
    "_run_eagerly",
)  # fmt: skip
"""Attributes of a model that ``compile()`` sets. Its metrics stay, so that the next ``compile()`` takes them away."""
_WRAPPERS = ("build", "quantize")
"""Methods of a layer that its ``__new__()`` wraps."""
_FUNCTIONS = ("_standardize", "_split")
"""Attributes of ``TextVectorization`` that may be functions of the script."""
_DECAY = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")


def reduce(value: Any) -> Reduced | None:
    """What pickle needs to make an object again, in the form of ``__reduce__()``; None: pickle knows how."""
    if isinstance(value, keras.Variable):
        return _variable(value)
    if isinstance(value, keras.KerasTensor):
        return _symbol, (value.shape, value.dtype, value.sparse, value.name)
    if isinstance(value, keras.optimizers.Optimizer):
        return _optimizer(value)
    if isinstance(value, keras.Operation):
        return _operation(value)
    if isinstance(value, keras.DTypePolicy):
        return keras.dtype_policies.deserialize, (keras.dtype_policies.serialize(value),)
    if isinstance(value, Tracker):
        return _empty_plain, (type(value),), dict(vars(value)), None, None, _set_tracker
    if isinstance(value, KerasSaveable):
        return _empty_plain, (type(value),), dict(vars(value)), None, None, _set_plain
    if type(value) in _TRACKED:
        content = dict(value) if isinstance(value, dict) else set(value) if isinstance(value, set) else list(value)
        return _empty_plain, (type(value),), (content, value.tracker), None, None, _fill
    if isinstance(value, DynamicBackend):  # Of Normalization and augmentation. Without attributes its lookups recurse.
        return DynamicBackend, (value._backend,)
    if isinstance(value, tf.data.Dataset):
        return held_datasets.reduce(value)
    if type(value) in _LOCKS:
        return _LOCKS[type(value)], ()
    return None


def _operation(value: Any) -> Reduced:
    """As ``reduce``, for layers, models and other operations."""
    if isinstance(value, keras.layers.InputLayer):
        return graph.make_input, (
            value.batch_shape,
            value.dtype,
            value.sparse,
            getattr(value, "ragged", False),
            value.name,
        )
    if isinstance(value, keras.Model) and graph.is_graph(value):
        return _empty, (type(value),), graph.describe(value, _attributes(value)), None, None, graph.restore
    if hasattr(value, "save_assets") and type(value).__module__.startswith("keras."):
        functions = {name: function for name in _FUNCTIONS if callable(function := vars(value).get(name))}
        vars(value).update(dict.fromkeys(functions))  # Keras would keep their names, or their code without its globals.
        try:
            make, arguments, *_ = value.__reduce__()  # Lookup tables are in no attribute; Keras keeps them as files.
        finally:
            vars(value).update(functions)
        return _with_tables, (make, arguments, value.path, value.built), functions, None, None, _set_plain
    return _empty, (type(value),), _attributes(value), None, None, set_attributes


def _with_tables(make: Any, arguments: Any, path: str | None, built: bool) -> Any:
    """A layer that Keras has made of its files. If it was built it stays so, or its path would change with a call."""
    made = make(*arguments)
    if built:
        made._path = path
        made.built = True
    return made


def _attributes(layer: Any) -> dict[str, Any]:
    """The attributes of a layer or model, without those that its process makes for itself."""
    found = {
        name: value
        for name, value in vars(layer).items()
        if name not in (*_OF_ONE_PROCESS, *_WRAPPERS) and not name.startswith("_self_")
    }
    if not isinstance(layer, keras.Model):
        return found
    found = {name: value for name, value in found.items() if name not in _OF_FIT}
    if not layer.compiled:
        return found
    config = getattr(layer, "_compile_config", None)
    given = dict(config.config) if isinstance(config, SerializableDict) else {}
    return {name: value for name, value in found.items() if name not in _OF_COMPILE} | {"_compile_config": given}


def set_attributes(layer: Any, attributes: Mapping[str, Any]) -> None:
    """Inverse of ``_attributes``, for a layer that has none."""
    values = dict(attributes)
    compiled = values.pop("_compile_config", None)
    vars(layer).update(values, _inbound_nodes=[], _outbound_nodes=[])
    if isinstance(layer, keras.Sequential):
        _rebuild(layer)
    if isinstance(layer, keras.Model):
        compile_again(layer, compiled)


def compile_again(model: Any, given: Mapping[str, Any] | None) -> None:
    """Call Keras' own ``compile()`` with what it was called with; a class may have one that takes other arguments."""
    tracker = vars(model).get("_tracker")
    locked = tracker is not None and tracker.locked
    if locked:
        tracker.unlock()
    for name in _OF_FIT[:3]:
        vars(model).setdefault(name, None)
    vars(model).setdefault("_distribute_strategy", None)
    vars(model).setdefault("_losses_override", [])
    if given is None:
        vars(model).setdefault("compiled", False)
    else:
        vars(model).update(compiled=False, _compile_loss=None, _jit_compile=None, _run_eagerly=False)
        Trainer.compile(model, **given)
    if locked:
        tracker.lock()


def _rebuild(model: Any) -> None:
    """Make the graph of a Sequential model, whose layers are built."""
    built = model.built
    vars(model)["_functional"] = None
    if model._layers and isinstance(model._layers[0], keras.layers.InputLayer):
        model._maybe_rebuild()
    vars(model)["built"] = built


def _empty(kind: type) -> Any:
    """A layer or operation without attributes, whose methods are wrapped as Keras wraps them."""
    if issubclass(kind, keras.layers.Layer):
        return keras.layers.Layer.__new__(kind)
    return keras.Operation.__new__(kind)


def _empty_plain(kind: type) -> Any:
    made: Any = kind.__new__(kind)  # type: ignore[call-overload]
    return made


def _set_plain(made: Any, attributes: Mapping[str, Any]) -> None:
    vars(made).update(attributes)


def _set_tracker(made: Any, attributes: Mapping[str, Any]) -> None:
    """A tracker knows the objects in its stores by their ids, which differ in each process."""
    vars(made).update(attributes)
    made.stored_ids = {name: {id(value) for value in store} for name, (_, store) in made.config.items()}


def _fill(made: Any, state: tuple[Any, Any]) -> None:
    made.tracker = None
    content, tracker = state
    (made.extend if isinstance(made, list) else made.update)(content)
    made.tracker = tracker


def _variable(value: Any) -> Reduced:
    facts = {
        "dtype": value.dtype,
        "trainable": value.trainable,
        "autocast": value._autocast,
        "aggregation": value.aggregation,
        "name": value.name,
    }
    more = {
        name: vars(value).get(name) for name in ("_path", "_regularizer", "_constraint", "_overwrite_with_gradient")
    }
    content = tf.convert_to_tensor(value.value).numpy()  # NumPy can't read all variables of a strategy.
    stored = content.view(np.uint16) if value.dtype == "bfloat16" else content
    return _make_variable, (stored, facts, value.value.name), more, None, None, _set_plain


def _make_variable(content: Any, facts: Mapping[str, Any], tensorflow_name: str) -> Any:
    """A variable with the names that it had: a weight decay, for instance, may leave some names out."""
    if facts["dtype"] == "bfloat16":
        content = content.view(tf.bfloat16.as_numpy_dtype)
    scope, slash, _ = tensorflow_name.rpartition("/")
    with tf.name_scope(scope + slash if slash else ""):
        return keras.Variable(content, **facts)


def _symbol(shape: Any, dtype: str, sparse: bool, name: str) -> Any:
    return keras.KerasTensor(shape, dtype, sparse=sparse, name=name)


def _optimizer(optimizer: Any) -> Reduced:
    """An optimizer as before its first step: a job starts its optimizer from scratch."""
    config = optimizer.get_config()
    schedule = getattr(optimizer, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        config["learning_rate"] = schedule
    if inner := getattr(optimizer, "inner_optimizer", None):
        config["inner_optimizer"] = inner
    excluded = {name: vars(optimizer)[name] for name in _DECAY if name in vars(optimizer)}
    if excluded.get(_DECAY[0]):
        raise UserError(
            "exclude_from_weight_decay(var_list=...) of the optimizer names variables of this process",
            hint="Use exclude_from_weight_decay(var_names=[...]).",
        )
    return _make_optimizer, (type(optimizer), config), excluded, None, None, _set_plain


def _make_optimizer(kind: type, config: dict[str, Any]) -> Any:
    if "inner_optimizer" in config:
        return kind(**config)
    return kind.from_config(config)  # type: ignore[attr-defined]
