"""Imports TensorFlow, Keras and what is built on them, in about two thirds of the time that it takes by itself.

Two thousand modules create objects that are never freed, and the garbage collector searches them again and again for
cycles. It is paused during the imports, and ignores these objects afterwards. Keras also imports Matplotlib and
scikit-learn, if they are installed, for plots and wrappers that hardly any training job uses. They are imported when
something uses them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from elasticdl.shared.process.fork_server import without_collection

_MODULES = (
    "elasticdl.worker.model_builder",
    "elasticdl.worker.service",
    "elasticdl.shared.data.hash_kernels",
    "elasticdl.shared.data.order_kernels",
)
"""Those with kernels would otherwise be imported by every worker when it reads its first record."""
_KERAS = ("keras", "keras.src", "keras._tf_keras.keras")
_LATER = tuple(f"{package}.{name}" for package in _KERAS for name in ("visualization", "wrappers"))
"""Modules of Keras that import Matplotlib and scikit-learn."""


def import_model_code() -> None:
    """Import everything that a worker needs to build a model; any thread may, once is enough."""
    with without_collection(), _imported_later(_LATER):
        for module in _MODULES:
            importlib.import_module(module)


class _LaterModule(ModuleType):
    """Stands for a module until one of its attributes is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _imported_later(names: Sequence[str]) -> Iterator[None]:
    """Have code that imports one of these modules in this block get a ``_LaterModule``, if it is not imported yet."""
    modules = {name: _LaterModule(name) for name in names if name not in sys.modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
