"""Puts another ``fit()`` in the place of Keras', as soon as a script imports Keras, and imports nothing itself."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
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


def replace_fit(fit: Fit) -> None:
    """Replace ``keras.Model.fit`` in this process, now or once Keras is imported."""
    for name, kind in TRAINERS.items():
        if name in sys.modules:
            _replace(sys.modules[name], kind, fit)
    sys.meta_path.insert(0, _Finder(fit))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules in ``TRAINERS`` as Python does, and has them changed once they are loaded."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See ``importlib``."""
        if fullname not in TRAINERS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._fit)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, fit: Fit) -> None:
        self._loader = loader
        self._fit = fit

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """See ``importlib``."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """See ``importlib``."""
        self._loader.exec_module(module)
        _replace(module, TRAINERS[module.__name__], self._fit)


def _replace(module: ModuleType, kind: str, fit: Fit) -> None:
    trainer = getattr(module, kind)
    original = trainer.fit

    @functools.wraps(original)
    def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        return fit(self, original, args, kwargs)

    trainer.fit = replaced
