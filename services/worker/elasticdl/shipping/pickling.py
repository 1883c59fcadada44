"""Objects as bytes, for another process that has the same packages: what the script defines travels by value."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle

from elasticdl.shared.errors import UserError
from elasticdl.shipping import keras_objects

_INSTALLED = ("site-packages", "dist-packages")
_RECURSION_MAX = 5_000
"""Layers may be nested, or lists of Python objects linked, deeper than Python's default limit allows."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        """See ``pickle``."""
        reduced = keras_objects.reduce(obj)
        return super().reducer_override(obj) if reduced is None else reduced


def dumps(value: Any, folder: Path, what: str) -> bytes:
    """An object as bytes.

    Args:
        folder: of the script; modules below it travel by value.
        what: names the object in messages.

    Raises:
        UserError: the object, or one that it refers to, can't travel.
    """
    file = io.BytesIO()
    with _by_value(folder), _deep():
        try:
            _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        except (
            TypeError,
            AttributeError,
            ValueError,
            pickle.PicklingError,
            NotImplementedError,
            RecursionError,
        ) as error:
            raise UserError(
                f"{what} can't be sent to the workers: {error}",
                hint="It refers to something that exists in this process only, such as an open file, a lock or a "
                "generator. Make that inside of the function or layer that uses it.",
            ) from error
    return file.getvalue()


def loads(content: bytes) -> Any:
    """Inverse of ``dumps``. The content must come from a trusted place: it can run code."""
    with _deep():
        return pickle.loads(content)  # noqa: S301  It is the user's own script.


def copied(value: Any) -> Any:
    """A copy of an object of Keras, whose classes have no ``get_config()``."""
    return loads(dumps(value, Path(), type(value).__name__))


@contextmanager
def _by_value(folder: Path) -> Iterator[None]:
    registered = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file and _is_of_script(Path(file), folder):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _is_of_script(file: Path, folder: Path) -> bool:
    return folder != Path() and file.is_relative_to(folder) and not set(_INSTALLED) & set(file.parts)


@contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_MAX))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
