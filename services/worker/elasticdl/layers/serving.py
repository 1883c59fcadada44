"""The interface between embedding layers and the code that serves their tables.

A *construction* is told of every embedding layer that a model makes and decides which tables are served; while a
model is called, a *lookup* answers with rows. Both belong to the thread that set them. With neither, layers keep
their own tables.

A file of a model without its tables has in place of each of them the number of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np


class Construction(Protocol):
    """Told of every embedding layer while a user's model is being made."""

    plain: bool
    """Make plain Keras layers only, for export."""

    @property
    def lookup(self) -> Lookup | None:
        """Answers the layers of the model outside of ``looking_up``; None: nothing does."""

    def register(self, layer: Any) -> None:
        """A layer has been constructed."""

    def serves(self, layer: Any) -> bool:
        """Whether the layer's table is served; asked once, when the layer is built."""

    def keep_dense(self, layer: Any, reason: str) -> None:
        """The model uses the table of a served layer in a way that only a table of its own allows."""


class Lookup(Protocol):
    """Answers ids with rows while a model is being called."""

    def rows(self, layer: Any, ids: Any) -> Any:
        """Rows of a served layer.

        Args:
            ids: int32 or int64 tensor of any shape.

        Returns:
            float32 tensor, shape of ``ids`` + (width,).
        """


_NUMBER = "table"
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
    """Rows of a served layer from the lookup in force, else from that of its construction.

    Raises:
        RuntimeError: the layer is called outside any lookup.
    """
    lookup = _lookup.get() or layer._construction.lookup
    if lookup is None:
        raise RuntimeError(f"the table of embedding {layer.name!r} is served by the ps; the layer can't run on its own")
    return lookup.rows(layer, ids)


def save_number(layer: Any, store: Any) -> bool:
    """Write the number of a layer's table, ``layer.table_number``, in place of the table.

    Args:
        store: of its weights, as Keras gives it to ``save_own_variables``.

    Returns:
        Whether the layer has such a number.
    """
    number = getattr(layer, "table_number", None)
    if number is not None:
        store[_NUMBER] = np.array(number)
    return number is not None


def load_number(layer: Any, store: Any) -> bool:
    """Read what ``save_number`` has written.

    Returns:
        Whether there is a number.

    Raises:
        ValueError: there is one, and the layer has its own table.
    """
    if _NUMBER not in store.keys():  # noqa: SIM118 (what Keras gives has keys, but can't be searched)
        return False
    construction = layer.__dict__.get("_construction")
    if construction is None or construction.lookup is None:
        raise ValueError(
            f"the table of embedding {layer.name!r} is not in this file. Load the export with "
            "elasticdl.layers.load_model(FOLDER)."
        )
    layer.table_number = int(np.asarray(store[_NUMBER]))
    return True
