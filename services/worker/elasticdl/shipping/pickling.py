"""Objects as bytes, for another process that has the same packages: what the script defines travels by value."""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.shipping import keras_objects

_INSTALLED = ("site-packages", "dist-packages")
_MAPPED_BYTES_MIN = 1 << 20
_ARRAYS = (np.ndarray, np.memmap)
_RECURSION_MAX = 5_000
"""Layers may be nested, or lists of Python objects linked, deeper than Python's default limit allows."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles objects of a script.

    Args:
        arrays: folder of large arrays, which workers map into memory; None: they are part of the bytes.
    """

    def __init__(self, file: io.BytesIO, arrays: Path | None) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._arrays = arrays
        self._kept: dict[int, tuple[int, Any]] = {}
        """By the identity of an array: its number, and the array, so that no other one gets its identity."""

    def persistent_id(self, obj: Any) -> int | None:
        """The number of a large array; see ``pickle``."""
        if self._arrays is None or type(obj) not in _ARRAYS or obj.nbytes < _MAPPED_BYTES_MIN or obj.dtype.hasobject:
            return None
        if id(obj) not in self._kept:
            self._arrays.mkdir(parents=True, exist_ok=True)
            np.save(_file(self._arrays, len(self._kept)), obj, allow_pickle=False)
            self._kept[id(obj)] = len(self._kept), obj
        number, _ = self._kept[id(obj)]
        return number

    def reducer_override(self, obj: Any) -> Any:
        """See ``pickle``."""
        reduced = keras_objects.reduce(obj)
        return super().reducer_override(obj) if reduced is None else reduced


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, arrays: Path) -> None:
        super().__init__(io.BytesIO(content))
        self._arrays = arrays
        self._loaded: dict[int, Any] = {}

    def persistent_load(self, pid: Any) -> Any:
        """A large array; what a process writes into it stays in that process."""
        if pid not in self._loaded:
            self._loaded[pid] = np.load(_file(self._arrays, pid), mmap_mode="c").view(np.ndarray)
        return self._loaded[pid]


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number}.npy"


def dumps(value: Any, folder: Path, what: str, arrays: Path | None = None) -> bytes:
    """An object as bytes.

    Args:
        folder: of the script; modules below it travel by value.
        what: names the object in messages.
        arrays: folder for its large arrays, made if it has some; None: they are part of the bytes.

    Raises:
        UserError: the object, or one that it refers to, can't travel.
    """
    file = io.BytesIO()
    with _by_value(folder), _deep():
        try:
            _Pickler(file, arrays).dump(value)
        except (
            TypeError,
            AttributeError,
            ValueError,
            pickle.PicklingError,
            NotImplementedError,
            RecursionError,
            tf.errors.OpError,  # Of a tensor without a value in memory, as iterators of tf.data have them.
        ) as error:
            raise UserError(
                f"{what} can't be sent to the workers: {error}",
                hint="It refers to something that exists in this process only, such as an open file, a lock or a "
                "generator. Make that inside of the function or layer that uses it.",
            ) from error
    return file.getvalue()


def loads(content: bytes, arrays: Path | None = None) -> Any:
    """Inverse of ``dumps``. The content must come from a trusted place: it can run code."""
    with _deep():
        if arrays is not None:
            return _Unpickler(content, arrays).load()
        return pickle.loads(content)  # noqa: S301  It is the user's own script.


def copied(value: Any) -> Any:
    """A copy of an object of Keras, whose classes have no ``get_config()``."""
    return loads(dumps(value, Path(), type(value).__name__))


@contextmanager
def _by_value(folder: Path) -> Iterator[None]:
    registered = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file and _is_of_script(file, folder):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _is_of_script(file: str, folder: Path) -> bool:
    if folder == Path() or not file.startswith(os.path.join(folder, "")):
        return False
    return not set(_INSTALLED) & set(Path(file).parts)


@contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_MAX))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
