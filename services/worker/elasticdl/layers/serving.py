"""The seam between embedding layers and whoever serves their tables.

A *construction* is told of every embedding layer that a model makes and decides which tables are served; while a
model is called, a *lookup* answers with rows. Both belong to the thread that set them. With neither, layers keep
their own tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Construction(Protocol):
    """Told of every embedding layer while a user's model is being made."""

    plain: bool
    """Make plain Keras layers only, for export."""

    def register(self, layer: Any) -> None:
        """A layer has been constructed."""

    def serves(self, layer: Any) -> bool:
        """Whether the layer's table is served; asked once, when the layer is built."""


class Lookup(Protocol):
    """Answers ids with rows while a model is being called."""

    def rows(self, layer: Any, ids: Any) -> Any:
        """Rows of a served layer.

        Args:
            layer: which layer.
            ids: int32 or int64 tensor of any shape.

        Returns:
            float32 tensor, shape of ``ids`` + (width,).
        """


_construction: ContextVar[Construction | None] = ContextVar("construction", default=None)
_lookup: ContextVar[Lookup | None] = ContextVar("lookup", default=None)


def construction() -> Construction | None:
    """The construction in progress, if any."""
    return _construction.get()


@contextmanager
def constructing(new: Construction) -> Iterator[None]:
    """Tell ``new`` of the embedding layers made inside the block."""
    token = _construction.set(new)
    try:
        yield
    finally:
        _construction.reset(token)


@contextmanager
def looking_up(new: Lookup) -> Iterator[None]:
    """Let ``new`` answer served layers inside the block."""
    token = _lookup.set(new)
    try:
        yield
    finally:
        _lookup.reset(token)


def rows(layer: Any, ids: Any) -> Any:
    """Rows of a served layer from the lookup in force.

    Raises:
        RuntimeError: the layer is called outside any lookup.
    """
    lookup = _lookup.get()
    if lookup is None:
        raise RuntimeError(f"the table of embedding {layer.name!r} is served by the ps; the layer can't run on its own")
    return lookup.rows(layer, ids)
