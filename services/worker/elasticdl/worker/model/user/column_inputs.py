"""Symbolic inputs for a model without input layers, made of the columns that the user names. See ADR 15."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from elasticdl.shared.data.schema import Metadata
from elasticdl.shared.errors import UserError

_TYPE = re.compile(r"(?P<list>list<)?(?P<element>\w+)[^\[]*(?:\[(?P<shape>\d+(?:x\d+)*)\])?$")


def stacked_input(
    data: Metadata, features: Sequence[str], labels: Sequence[str], path: Path, *, others: Sequence[str] = ()
) -> Any:
    """One input for several columns of numbers, (batch, columns), or for a single column of any type.

    Args:
        features: the columns; empty: all but the labels. Of an array and a number for each record, the array.
        others: further columns that are no inputs unless they are named.

    Raises:
        UserError: it is unclear which columns are meant, or they can't be one tensor.
    """
    types = dict(zip(data.column_names, data.column_types, strict=True))
    if not features and not labels and len(types) == 1 + len(others) + 1:
        features = [name for name, kind in types.items() if _input(name, kind).shape[1:] and name not in others]
        features = features if len(features) == 1 else []
    if not features and not labels:
        raise UserError(
            f"{path} defines neither feed() nor feed_batch(), and its model has no keras.Input that names columns",
            hint="Name the label with --label=COLUMN, and the model takes all other columns. Or choose its columns: "
            'features = ["a", "b"] for one tensor, features = {"a": "a", "b": "b"} for a dict of tensors.',
        )
    chosen = list(features) or [name for name in types if name not in (*labels, *others)]
    if len(chosen) == 1 and chosen[0] in types:
        (name,) = chosen
        made = _input(name, types[name])
        return keras.Input((1,), name=name) if made.shape == (None,) and made.dtype != "string" else made
    for name in chosen:
        if name in types and (_is_text(types[name]) or _input(name, types[name]).shape != (None,)):
            raise UserError(
                f"{path}: the model has no keras.Input, so it gets its columns as one tensor of numbers, and column "
                f"{name!r} is {types[name]}",
                hint='Choose columns of numbers: features = ["a", "b"]. Or have the model called with a dict of '
                f'tensors: features = {{"{name}": "{name}", ...}}.',
            )
    name = "features"
    while name in types:
        name += "_"
    return keras.Input((len(chosen),), name=name)


def keyed_inputs(data: Metadata, features: Mapping[str, str], path: Path) -> dict[str, Any]:
    """A dict of inputs: numbers, texts, lists or arrays, each (batch,), (batch, length) or (batch, ...).

    Args:
        features: key -> column.
    """
    types = dict(zip(data.column_names, data.column_types, strict=True))
    for column in features.values():
        if column not in types:
            raise UserError(
                f"features in {path}: {column!r} is no column of the data", hint=f"Columns: {', '.join(types)}."
            )
    return {key: _input(column, types[column]) for key, column in features.items()}


def _is_text(type_of: str) -> bool:
    return type_of.removeprefix("list<").startswith(("string", "binary"))


def _input(name: str, type_of: str) -> Any:
    """An input for one column: lists of any length have the length None."""
    found = _TYPE.match(type_of)
    element = found["element"] if found else "float32"
    shape: tuple[int | None, ...] = ()
    if found and (found["list"] or found["shape"]):
        shape = tuple(map(int, found["shape"].split("x"))) if found["shape"] else (None,)
    numbers = "float32" if element.startswith("float") else "int64"
    return keras.Input(shape, dtype="string" if _is_text(type_of) else numbers, name=name)
