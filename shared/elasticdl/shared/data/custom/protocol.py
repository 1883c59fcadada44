"""What a reader in a model file has to be: the object that ``custom_data_reader`` returns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Record = bytes | str | Mapping[str, Any]
"""Bytes or a text, which the model's feed parses; or a value for each column: a number, a text, a boolean, a list of
these, or None for a missing one. All records of a data set are of one kind."""

_URI = re.compile(r"shard:(.*)\[(\d+):(\d+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRange:
    """Records ``[start, end)`` of what the reader calls ``name``.

    Attributes:
        name: of a table, a file, a partition... as ``create_shards`` gave it.
    """

    name: str
    start: int
    end: int

    @property
    def records(self) -> int:
        """How many records it has."""
        return self.end - self.start

    @property
    def uri(self) -> str:
        """Names it as the source of a plan."""
        return f"shard:{self.name}[{self.start}:{self.end}]"

    @classmethod
    def of_uri(cls, uri: str) -> ShardRange:
        """Inverse of ``uri``."""
        match = _URI.fullmatch(uri)
        if match is None:
            raise ValueError(f"{uri!r} names no shard of a reader")
        return cls(name=match[1], start=int(match[2]), end=int(match[3]))

    def part(self, start: int, end: int) -> ShardRange:
        """The records ``[start, end)`` of this range, counted from its first record."""
        return ShardRange(name=self.name, start=self.start + start, end=self.start + end)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """What ``read_records`` is asked for."""

    shard: ShardRange


class DataReader(Protocol):
    """A reader of the user's.

    Each process that reads, and each of its threads, makes one of its own. Records have to be the same ones each time:
    a worker reads those of a task again after another worker was killed.
    """

    def create_shards(self) -> Iterable[tuple[str, int, int]]:
        """All records of the data: (name, number of the first record, number of records) for each shard.

        It is called once, before the job starts. Shards must not overlap. Each one is divided into tasks, so shards may
        be of any size.
        """
        ...

    def read_records(self, task: ReadTask) -> Iterable[Record]:
        """Exactly the records ``[task.shard.start, task.shard.end)`` of ``task.shard.name``, in order.

        It is asked for ranges within a shard, in any order.
        """
        ...
