"""Puts another ``fit()`` in the place of Keras', as soon as a script imports Keras, and imports nothing itself.

It also has Keras' utilities note how they made a dataset, from which workers may read it by number.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Fit = Callable[[Any, Any, Any, Any], Any]
"""(model, Keras' own ``fit``, arguments, keyword arguments) -> a Keras ``History``."""
TRAINERS = {
    "keras.src.backend.tensorflow.trainer": "TensorFlowTrainer",
    "keras.src.backend.jax.trainer": "JAXTrainer",
    "keras.src.backend.torch.trainer": "TorchTrainer",
}
"""Module -> the class in it whose ``fit()`` all models of that backend have."""
UTILITIES = {
    "keras.src.utils.text_dataset_utils": "_paths_and_labels_to_dataset_tf",
    "keras.src.utils.image_dataset_utils": "_paths_and_labels_to_dataset_tf",
    "keras.src.utils.timeseries_dataset_utils": "_timeseries_dataset_tf",
}
"""Module -> the function in it that makes a ``tf.data.Dataset``. Other versions of Keras may lack it."""
MADE_BY = "_elasticdl_made_by"
"""Attribute of such a dataset: the function, and its arguments by their names."""


def replace_fit(fit: Fit) -> None:
    """Replace ``keras.Model.fit`` in this process, now or once Keras is imported."""
    _install((*TRAINERS, *UTILITIES), fit)


def note_datasets() -> None:
    """Have Keras' utilities note how they made a dataset, and leave ``fit()`` as it is."""
    _install(tuple(UTILITIES), None)


def _install(names: tuple[str, ...], fit: Fit | None) -> None:
    for name in names:
        if name in sys.modules:
            _change(sys.modules[name], fit)
    sys.meta_path.insert(0, _Finder(names, fit))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of ``TRAINERS`` and ``UTILITIES`` as Python does, and has them changed once they are loaded."""

    def __init__(self, names: tuple[str, ...], fit: Fit | None) -> None:
        self._names = names
        self._fit = fit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See ``importlib``."""
        if fullname not in self._names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._fit)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, fit: Fit | None) -> None:
        self._loader = loader
        self._fit = fit

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """See ``importlib``."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """See ``importlib``."""
        self._loader.exec_module(module)
        _change(module, self._fit)


def _change(module: ModuleType, fit: Fit | None) -> None:
    if fit is not None and module.__name__ in TRAINERS:
        _replace(module, TRAINERS[module.__name__], fit)
    elif (original := getattr(module, UTILITIES[module.__name__], None)) and not hasattr(original, "__wrapped__"):
        setattr(module, UTILITIES[module.__name__], _noting(original))


def _noting(original: Any) -> Any:
    @functools.wraps(original)
    def noting(*args: Any, **kwargs: Any) -> Any:
        dataset = original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        setattr(dataset, MADE_BY, (original.__name__, dict(bound.arguments)))
        return dataset

    return noting


def _replace(module: ModuleType, kind: str, fit: Fit) -> None:
    trainer = getattr(module, kind)
    original = trainer.fit

    @functools.wraps(original)
    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        return fit(self, original, args, kwargs)

    trainer.fit = replaced
