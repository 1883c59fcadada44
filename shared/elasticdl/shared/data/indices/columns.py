"""Encodes what scans found in the columns of consecutive sources, so that a later job need not scan them again."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter

from elasticdl.shared.data.column_types import FoundColumn
from elasticdl.shared.messages.compression import decompressed_object

_COMPRESSION = 1
FIELDS = tuple(field.name for field in fields(FoundColumn))
"""What is recorded of a column."""
_VALUES = attrgetter(*FIELDS)
Columns = tuple[FoundColumn, ...]


def to_bytes(sources: Sequence[Columns]) -> bytes:
    """Compressed JSON: how many columns each source has, and for each field a list of its values in all of them."""
    values = list(zip(*map(_VALUES, itertools.chain.from_iterable(sources)), strict=True))
    return zlib.compress(json.dumps([[len(columns) for columns in sources], values]).encode(), _COMPRESSION)


def columns_of(data: bytes) -> Iterator[Columns]:
    """The columns of each source.

    Raises:
        ValueError, KeyError, TypeError, zlib.error: it is damaged.
    """
    counts, values = json.loads(decompressed_object(data))
    found = (FoundColumn(**dict(zip(FIELDS, each, strict=True))) for each in zip(*values, strict=True))
    for count in counts:
        columns = tuple(itertools.islice(found, count))
        if len(columns) != count:
            raise ValueError(count)
        yield columns
