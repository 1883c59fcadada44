"""Encodes what scans found in the columns of consecutive sources, so that a later job need not scan them again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields

from elasticdl.shared.data.column_types import FoundColumn

_COMPRESSION = 1
_DEFAULTS = {field.name: field.default for field in fields(FoundColumn) if field.default is not MISSING}
FIELDS = tuple(field.name for field in fields(FoundColumn))
"""What is recorded of a column."""
Columns = tuple[FoundColumn, ...]


def to_bytes(sources: Sequence[Columns]) -> bytes:
    """The columns of each source as compressed JSON, without values that are the default."""
    return zlib.compress(json.dumps([list(map(_facts, columns)) for columns in sources]).encode(), _COMPRESSION)


def columns_of(data: bytes) -> Iterator[Columns]:
    """The columns of each source.

    Args:
        data: result of ``to_bytes``.

    Raises:
        ValueError, KeyError, TypeError, zlib.error: it is damaged.
    """
    return (tuple(FoundColumn(**facts) for facts in columns) for columns in json.loads(zlib.decompress(data)))


def _facts(column: FoundColumn) -> dict[str, object]:
    values = ((name, getattr(column, name)) for name in FIELDS)
    return {name: value for name, value in values if name not in _DEFAULTS or value != _DEFAULTS[name]}
