"""What stands in for the names that model files of the first ElasticDL import, see ``elasticdl.shared.job.old_names``.

Its learning rates are functions of the number of updates; they become a schedule of the optimizer.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import keras

from elasticdl.layers import Embedding as _Embedding
from elasticdl.shared.job.old_names import FIRST

SCHEDULE = "learning_rate_scheduler"
"""Function of a model file: number of updates -> learning rate."""


class Mode:
    """The modes that a feed gets."""

    TRAINING = "train"
    EVALUATION = "evaluate"
    PREDICTION = "predict"


class Replaced:
    """A callback that the job does without."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass


class LearningRateScheduler(Replaced):
    """Gives the learning rate after a number of updates."""

    def __init__(self, schedule: Callable[[int], float]) -> None:
        super().__init__()
        self.schedule = schedule


class UpdateSchedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule that is a function of the number of updates."""

    def __init__(self, function: Callable[[int], float]) -> None:
        super().__init__()
        self._function = function

    def __call__(self, step: Any) -> float:
        """The learning rate after ``step`` updates."""
        return float(self._function(int(step)))


def embedding(*args: Any, input_length: int | None = None, **kwargs: Any) -> Any:  # noqa: ARG001  Shapes tell it.
    """``elasticdl.layers.Embedding``."""
    return _Embedding(*args, **kwargs)


_LOGGER = logging.getLogger("elasticdl")
_NAMES: dict[str, Any] = {
    "Mode": Mode,
    "Embedding": embedding,
    "LearningRateScheduler": LearningRateScheduler,
    "SavedModelExporter": Replaced,
    "BasePredictionOutputsProcessor": object,
    "PredictionOutputsProcessor": object,
    "default_logger": _LOGGER,
    "log_utils": SimpleNamespace(default_logger=_LOGGER),
}
_SAME_IN_OPS = (
    "abs", "cast", "concatenate", "exp", "expand_dims", "log", "max", "mean", "min", "relu", "reshape", "sigmoid",
    "softmax", "sqrt", "square", "squeeze", "stack", "sum", "tanh",
)  # fmt: skip
"""Functions of ``tf.keras.backend`` that ``keras.ops`` has, too."""


def schedule_of(function: Any, callbacks: Sequence[Any]) -> UpdateSchedule | None:
    """The learning rate by the number of updates that a model file defines; None: it defines none.

    Args:
        function: what the file calls ``learning_rate_scheduler``; Keras' users call functions of an epoch so.
    """
    if callable(function) and [*inspect.signature(function).parameters] == ["model_version"]:
        return UpdateSchedule(function)
    found = [each.schedule for each in callbacks if isinstance(each, LearningRateScheduler)]
    return UpdateSchedule(found[0]) if found else None


@functools.cache
def install() -> None:
    """Let model files import these names, and use functions of the backend of Keras 2 on symbolic tensors."""
    sys.meta_path.append(_Finder())
    from tensorflow.keras import backend

    for name in _SAME_IN_OPS:
        if hasattr(backend, name) and hasattr(keras.ops, name):
            setattr(backend, name, _either(getattr(backend, name), getattr(keras.ops, name)))


def _either(of_tensors: Callable[..., Any], of_symbols: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(of_tensors)
    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = keras.tree.flatten((args, kwargs))
        symbolic = any(isinstance(leaf, keras.KerasTensor) for leaf in leaves)
        return (of_symbols if symbolic else of_tensors)(*args, **kwargs)

    return run


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the first ElasticDL: each of them has all of the names."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See ``importlib``."""
        if fullname != FIRST and not fullname.startswith(f"{FIRST}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """See ``importlib``."""
        vars(module).update(_NAMES)
