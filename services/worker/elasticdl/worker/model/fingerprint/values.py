"""Values by their description: exact for all but floating-point numbers, which are compared with a tolerance."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

PROJECTIONS = 4
TOLERANCE = 1e-5
"""Relative difference of floats that counts as none: sums over several threads differ in their last bits."""
_PREVIEW_CHARS = 100
_PREVIEW_ITEMS = 4
_STEPS = tuple(math.modf(math.sqrt(prime))[0] for prime in (2, 3, 5, 7))
_DIGEST_BYTES = 8
SIMPLE = (str, bytes, bool, int, float, complex, np.generic, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A value as far as it can be compared.

    Attributes:
        digest: of everything in it but its floats.
        floats: norm and projections of its floats, in their order; empty without floats.
    """

    digest: str
    floats: tuple[float, ...] = ()
    preview: str = ""

    def equals(self, other: Description) -> bool:
        """Whether both describe the same value, up to the tolerance for floats."""
        if self.digest != other.digest or len(self.floats) != len(other.floats):
            return False
        limit = TOLERANCE * max((abs(each) for each in (*self.floats[:1], *other.floats[:1])), default=0.0)
        return all(abs(one - two) <= limit for one, two in zip(self.floats, other.floats, strict=True))


def describe(*values: Any) -> Description:
    """Describe values: scalars, arrays, tensors and collections of them; of other objects only the type."""
    parts = _Parts()
    for value in values:
        parts.add(value)
    return Description(
        digest=parts.hash.hexdigest(),
        floats=_projections(parts.floats),
        preview=", ".join(_text(value) for value in values),
    )


@dataclass(slots=True)
class _Parts:
    """The parts of a value: a hash of everything exact, and all floats."""

    hash: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES))
    floats: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, value: Any) -> None:
        match value:
            case float() | np.floating():
                self._add_floats(np.asarray(value))
            case str() | bytes() | bool() | int() | None:
                self._exactly(type(value).__name__, str(value).encode() if not isinstance(value, bytes) else value)
            case np.ndarray() | np.generic():
                self._add_array(np.asarray(value))
            case tf.Tensor() if hasattr(value, "numpy") and value.dtype not in (tf.resource, tf.variant):
                self._add_array(np.asarray(value))
            case Mapping():
                self._exactly("mapping", b"%d" % len(value))
                for key in sorted(value, key=repr):
                    self.add(key)
                    self.add(value[key])
            case set() | frozenset():
                self.add(sorted(value, key=repr))
            case list() | tuple():
                self._exactly("sequence", b"%d" % len(value))
                for item in value:
                    self.add(item)
            case _:
                self._exactly("object", f"{type(value).__module__}.{type(value).__qualname__}".encode())

    def _add_array(self, array: NDArray[Any]) -> None:
        if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
            self._add_floats(array)
            return
        if array.dtype.kind in "OSU":
            self._exactly("strings", f"{array.shape}".encode())
            for item in array.reshape(-1).tolist():
                self.add(item)
        else:
            self._exactly("array", f"{array.dtype.kind}{array.shape}".encode())
            self.hash.update(np.ascontiguousarray(array).tobytes())

    def _add_floats(self, array: NDArray[Any]) -> None:
        values = np.asarray(array, np.float64).reshape(-1)
        special = np.flatnonzero(~np.isfinite(values))
        self._exactly("floats", f"{array.shape}".encode())
        self.hash.update(special.tobytes() + str(values[special].tolist()).encode())
        self.floats.append(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0))

    def _exactly(self, kind: str, value: bytes) -> None:
        self.hash.update(struct.pack("<Q", len(value)) + kind.encode() + value)


def _projections(parts: list[NDArray[np.float64]]) -> tuple[float, ...]:
    """The norm of a vector and its products with fixed vectors of the same length and of values below 1."""
    values = np.concatenate(parts) if parts else np.empty(0)
    if not values.size:
        return ()
    places = np.arange(1, values.size + 1, dtype=np.float64)
    products = (float(values @ (2 * np.modf(places * step)[0] - 1)) for step in _STEPS[:PROJECTIONS])
    return tuple(float(f"{each:.9g}") for each in (float(np.linalg.norm(values)), *products))


def _text(value: Any) -> str:
    match value:
        case np.ndarray() | tf.Tensor():
            array = np.asarray(value)
            items: Iterable[Any] = array.reshape(-1)[:_PREVIEW_ITEMS].tolist()
            text = f"{array.dtype.name if array.dtype.kind != 'O' else 'string'} {list(array.shape)}: "
            text += _items(items, array.size)
        case list() | tuple():
            text = f"[{_items(value[:_PREVIEW_ITEMS], len(value))}]"
        case set() | frozenset():
            text = f"{{{_items(sorted(value, key=repr)[:_PREVIEW_ITEMS], len(value))}}}"
        case Mapping():
            scalars = {key: item for key, item in value.items() if isinstance(item, SIMPLE) and item is not None}
            text = ", ".join(f"{key}={_item(item)}" for key, item in scalars.items())
        case _ if isinstance(value, SIMPLE):
            text = _item(value)
        case _:
            text = type(value).__name__
    return text if len(text) <= _PREVIEW_CHARS else f"{text[: _PREVIEW_CHARS - 3]}..."


def _items(items: Iterable[Any], count: int) -> str:
    shown = [_item(item) for item in items]
    return ", ".join(shown) + (f", ... ({count:,} in all)" if count > len(shown) else "")


def _item(item: Any) -> str:
    match item:
        case bytes():
            return repr(item.decode(errors="replace"))
        case str():
            return repr(str(item))
        case float() | np.floating():
            return f"{float(item):.5g}"
        case np.generic():
            return str(item)
        case _ if isinstance(item, SIMPLE):
            return repr(item)
        case _:
            return _text(item)
