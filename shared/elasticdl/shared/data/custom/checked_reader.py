"""Calls a user's reader and checks what it gives."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.shared.data.custom.protocol import ReadTask, ShardRange
from elasticdl.shared.errors import UserError

METHODS = ("create_shards", "read_records")
_SHARD = "A shard is a tuple: (name, number of the first record, number of records)."


def encoded(record: object, where: str) -> tuple[bytes, bool]:
    """A record as bytes, and whether it has columns.

    Args:
        record: bytes and texts stay what they are. A dict of columns becomes a line of JSON, without its NaNs, which
            are missing values. NumPy's numbers and one-dimensional arrays are numbers and lists.

    Raises:
        UserError: it is something else, or a column has a value that can't be read.
    """
    match record:
        case bytes():
            return record, False
        case str():
            return record.encode(), False
        case Mapping():
            return _line(record, where), True
        case _:
            raise UserError(
                f"{where} is of type {_shown(record)}",
                hint="read_records() has to yield bytes, a str, or a dict with a value for each column.",
            )


def _line(record: Mapping[Any, Any], where: str) -> bytes:
    if wrong := [name for name in record if not isinstance(name, str)]:
        raise UserError(f"{where} has the key {wrong[0]!r}", hint="Keys are the names of columns: each must be a str.")
    try:
        return _ENCODER.encode(dict(record)).encode()
    except (TypeError, ValueError):
        plain = {name: _without_nan(value, f"{where}: column {name!r}") for name, value in record.items()}
        return _ENCODER.encode(plain).encode()


def _plain(value: object) -> object:
    """A value of NumPy as one of Python."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError


_ENCODER = json.JSONEncoder(default=_plain, allow_nan=False, ensure_ascii=False)


def _without_nan(value: Any, where: str) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    match value:
        case list() | tuple():
            return [_without_nan(each, where) for each in value]
        case float() if math.isnan(value):
            return None
        case float() if math.isinf(value):
            raise UserError(f"{where} is infinite", hint="Yield a number, or None for a missing value.")
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise UserError(
                f"{where} is of type {_shown(value)}, which can't be read",
                hint="Values are numbers, texts, booleans, lists of these, or None for a missing one. For anything "
                "else, yield bytes, and parse them in feed() or feed_batch().",
            )


def _shown(value: object) -> str:
    """``list: [1, 2]``."""
    shown = repr(value)
    return f"{type(value).__name__}: {shown[:_CHARS_SHOWN]}{'...' if shown[_CHARS_SHOWN:] else ''}"


_CHARS_SHOWN = 80


class CheckedReader:
    """A reader of the user's whose results are checked.

    Args:
        make: calls the user's function. Each thread gets an object of its own: connections to databases are often bound
            to a thread.
        guard: (what is run) -> a context that turns what user code raises into a UserError.
    """

    def __init__(
        self,
        make: Callable[[], object],
        *,
        function: str,
        path: Path,
        guard: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        self._make = make
        self._function = function
        self._path = path
        self._guard = guard
        self._own = threading.local()

    def shards(self) -> list[ShardRange]:
        """The ranges of records that the data consists of; shards that continue each other are one range.

        Raises:
            UserError: they are not what ``create_shards`` has to give, are empty, or overlap.
        """
        with self._guard("create_shards()"):
            given = self._reader.create_shards()
            if not isinstance(given, Iterable) or isinstance(given, str | bytes):
                raise self._wrong("create_shards", f"returned {type(given).__name__}", f"Return a list. {_SHARD}")
            shards = [self._shard(each) for each in given]
        _check_overlaps(shards, f"create_shards() of {self._path}")
        return list(_joined(shards))

    def read(self, part: ShardRange) -> tuple[list[bytes], bool]:
        """The records of a range as bytes, and whether they have columns; see ``encoded``.

        Raises:
            UserError: there are fewer or more of them, or they are not what ``read_records`` has to yield.
        """
        lines: list[bytes] = []
        kinds: set[bool] = set()
        with self._guard("read_records()"):
            records = self._reader.read_records(ReadTask(shard=part))
            if not isinstance(records, Iterable) or isinstance(records, str | bytes):
                raise self._wrong(
                    "read_records",
                    f"returned {type(records).__name__}",
                    "Yield one record after another, or return a list of them.",
                )
            for number, record in enumerate(records, part.start):
                if number == part.end:
                    raise self._count(part, "more")
                line, has_columns = encoded(record, f"{self._path}: record {number} of shard {part.name!r}")
                lines.append(line)
                kinds.add(has_columns)
        if len(lines) < part.records:
            raise self._count(part, f"only {len(lines)}")
        if len(kinds) > 1:
            raise self._wrong(
                "read_records", "yields dicts and bytes or texts", "All records of a data set must be of one kind."
            )
        return lines, True in kinds

    @property
    def _reader(self) -> Any:
        """The user's object of this thread."""
        reader = getattr(self._own, "reader", None)
        if reader is None:
            reader = self._make()
            lacking = [name for name in METHODS if not callable(getattr(reader, name, None))]
            if lacking:
                raise UserError(
                    f"{self._path}: {self._function}() returned {type(reader).__name__}, which has no {lacking[0]}()",
                    hint="Return an object with the methods create_shards() and read_records(task).",
                )
            self._own.reader = reader
        return reader

    def _shard(self, given: Any) -> ShardRange:
        match given:
            case (str(name), start, records) if _is_integer(start) and _is_integer(records):
                shard = ShardRange(name=name, start=int(start), end=int(start) + int(records))
            case _:
                shown = repr(given)
                shown = shown[:_CHARS_SHOWN] + ("..." if shown[_CHARS_SHOWN:] else "")
                raise self._wrong("create_shards", f"gives {shown}", _SHARD)
        if shard.start < 0:
            raise self._wrong("create_shards", f"gives shard {shard.name!r} from record {shard.start} on", _SHARD)
        if shard.records < 1:
            raise self._wrong(
                "create_shards",
                f"gives shard {shard.name!r} from record {shard.start} on with {shard.records} records",
                f"Leave out shards without records. {_SHARD}",
            )
        return shard

    def _count(self, part: ShardRange, found: str) -> UserError:
        return self._wrong(
            "read_records",
            f"was asked for {part.records} records, {part.start} to {part.end - 1} of shard {part.name!r}, and yields "
            f"{found}",
            "It has to yield exactly the records [task.shard.start, task.shard.end). Check also what create_shards() "
            "says about this shard.",
        )

    def _wrong(self, method: str, what: str, hint: str) -> UserError:
        return UserError(f"{method}() of {self._path} {what}", hint=hint)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_overlaps(shards: list[ShardRange], what: str) -> None:
    ordered = sorted(shards, key=lambda shard: (shard.name, shard.start))
    for one, other in itertools.pairwise(ordered):
        if one.name == other.name and other.start < one.end:
            raise UserError(
                f"{what} gives shards that overlap: records {one.start} to {one.end - 1} and {other.start} to "
                f"{other.end - 1} of {one.name!r}",
                hint="Each record must be in one shard, or it would be read twice in each epoch.",
            )


def _joined(shards: list[ShardRange]) -> Iterator[ShardRange]:
    """The shards in their order, those joined that continue the one before them."""
    current: ShardRange | None = None
    for shard in shards:
        if current and (current.name, current.end) == (shard.name, shard.start):
            current = ShardRange(name=current.name, start=current.start, end=shard.end)
            continue
        if current:
            yield current
        current = shard
    if current:
        yield current
