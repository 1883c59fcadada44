"""Copies of folds at points of a log, from which any point between is a short way. Pure.

They are pickled, which is several times as fast as ``deepcopy`` or as a core snapshot, and never leave this process.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import zlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.garbage import uncollected

BYTES_MAX = 256 << 20
"""If all copies of a log have more, every other one is dropped."""
BYTES_PER_RECORD = 100
"""If a copy has more for each record of the interval, as with a thousand workers, fewer are made: reading the log would
take more time for copies than for records."""
_FAR = 50
"""Records that a copy of the small state of a new job takes as long as."""
_COMPRESSION = 1
"""The fastest level makes copies a quarter as large."""
_SHARED = (JobSpec, Plan)
"""Frozen and possibly large: copies refer to the same object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A value as it was.

    Attributes:
        data: pickled and compressed.
        shared: the objects that it has in common with the original.
    """

    data: bytes
    shared: tuple[object, ...]

    @classmethod
    def of(cls, value: object) -> Copy:
        """Copy a value."""
        file = io.BytesIO()
        pickler = _Pickler(file)
        with uncollected():  # To look at the new objects took a quarter of the time.
            pickler.dump(value)
        return cls(data=zlib.compress(file.getbuffer(), _COMPRESSION), shared=tuple(pickler.shared))

    def value(self) -> Any:
        """Another copy, which the caller can change."""
        unpickler = _Unpickler(io.BytesIO(zlib.decompress(self.data)), self.shared)
        with uncollected():
            return unpickler.load()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What was folded until a record.

    Attributes:
        seq: number of the last record in ``wall_time``.
        state_seq: number of the last record in ``state``; the fold holds a few back.
    """

    seq: int
    state_seq: int
    state: Copy
    wall_time: Copy

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return len(self.state.data) + len(self.wall_time.data)


class Checkpoints:
    """The checkpoints of a log that is read.

    Args:
        interval: records between two of them, at least.
    """

    def __init__(self, interval: int, *, bytes_max: int = BYTES_MAX) -> None:
        self._interval = interval
        self._bytes_max = bytes_max
        self._kept: list[Checkpoint] = []
        self._bytes = 0

    def offer(self, seq: int, make: Callable[[], Checkpoint]) -> None:
        """Keep a checkpoint after this record if one is due."""
        last = self._kept[-1] if self._kept else None
        if seq - (last.seq if last else 0) < max(self._interval, last.size_bytes // BYTES_PER_RECORD if last else 0):
            return
        self._kept.append(make())
        self._bytes += self._kept[-1].size_bytes
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            self._interval *= 2
            self._kept = self._kept[1::2]
            self._bytes = sum(each.size_bytes for each in self._kept)

    def is_far_from(self, seq: int) -> bool:
        """Whether to fold from the last one to a record takes longer than another copy."""
        last = self._kept[-1] if self._kept else None
        return seq - (last.seq if last else 0) > (last.size_bytes // BYTES_PER_RECORD if last else _FAR)

    def before(self, seq: int) -> Checkpoint | None:
        """The last one up to a record."""
        place = bisect_right(self._kept, seq, key=lambda each: each.seq)
        return self._kept[place - 1] if place else None


def _task_ref(purpose: Purpose, number: int) -> TaskRef:
    return TaskRef(purpose=purpose, number=number)


def _place_of_shared(place: int) -> object:
    """Stands in a pickle for the function of an ``_Unpickler`` that finds a shared object."""
    raise LookupError(place)


def _read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.shared: list[object] = []
        # A table costs nothing for the strings and numbers that most of a state is, as ``persistent_id`` would.
        self.dispatch_table = {
            **copyreg.dispatch_table,
            # There is one for each worker, and a frozen class is slow to pickle.
            TaskRef: lambda ref: (_task_ref, (ref.purpose, ref.number)),
            MappingProxyType: lambda mapping: (_read_only, (dict(mapping),)),
            **dict.fromkeys(_SHARED, self._share),
        }

    def _share(self, value: object) -> tuple[Any, ...]:
        self.shared.append(value)  # The pickler knows objects that come again.
        return _place_of_shared, (len(self.shared) - 1,)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: tuple[object, ...]) -> None:
        super().__init__(file)
        self._shared = shared

    def find_class(self, module: str, name: str) -> Any:
        """See ``pickle.Unpickler``."""
        return self._shared.__getitem__ if name == _place_of_shared.__name__ else super().find_class(module, name)
