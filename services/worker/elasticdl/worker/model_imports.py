"""Imports TensorFlow, Keras and what is built on them, in about two thirds of the time that it takes by itself.

Two thousand modules create objects that are never freed, and the garbage collector searches them again and again for
cycles. It is paused during the imports, and ignores these objects afterwards. Keras imports scikit-learn for a wrapper
that no training job uses; the import is hidden meanwhile, and Keras works without it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

from elasticdl.shared.process.fast_import import without_collection

_MODULES = ("elasticdl.worker.model_builder", "elasticdl.worker.service")


def import_model_code() -> None:
    """Import everything that a worker needs to build a model; any thread may, once is enough."""
    with without_collection(), _hidden("sklearn"):
        for module in _MODULES:
            importlib.import_module(module)


@contextmanager
def _hidden(package: str) -> Iterator[None]:
    """Make imports of a package fail as if it were not installed, unless it is imported already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = cast("ModuleType", None)  # The import system's own way to say "there is none".
    try:
        yield
    finally:
        del sys.modules[package]
