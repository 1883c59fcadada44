"""The hash of a record, and arrays of them.

    record_hash(source, index, raw) = mix64(xxh3_64(raw) ^ derive_key(source, index))

The sum of these modulo 2**64 over a set of records is the checksum that indices and ledgers compare: it does not depend
on the order, and a lost, doubled or exchanged record changes it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from elasticdl.shared.job.permutation import derive_key, mix64
from elasticdl.shared.model import partitioning

Hashes = npt.NDArray[np.uint64]

_MASK64 = (1 << 64) - 1


def record_hash(source: int, index: int, raw: bytes) -> int:
    """The hash of one record: number ``index`` of source number ``source`` of the plan."""
    return mix64(xxh3_64_intdigest(raw) ^ derive_key(source, index))


def content_hashes(records: Sequence[bytes | memoryview]) -> Hashes:
    """xxh3_64 of each record; shape ``[len(records)]``."""
    return np.fromiter(map(xxh3_64_intdigest, records), dtype=np.uint64, count=len(records))


def bind(contents: Hashes, source: int, first: int) -> Hashes:
    """Record hashes from content hashes of the consecutive records ``first``, ``first + 1``... of a source."""
    key, compiled = derive_key(source), _compiled()
    if compiled is None:
        indices = np.arange(first, first + len(contents), dtype=np.uint64)
        return partitioning.mix64_array(contents ^ partitioning.mix64_array(np.uint64(key) ^ indices))
    bound = np.empty(len(contents), np.uint64)
    compiled.bind(np.ascontiguousarray(contents), key, first, bound)
    return bound


def mix64_array(values: Hashes) -> Hashes:
    """``mix64`` of each value, shape ``[values]``."""
    compiled = _compiled()
    if compiled is None:
        return partitioning.mix64_array(values)
    mixed = np.empty_like(values)
    compiled.mix(np.ascontiguousarray(values), mixed)
    return mixed


def fold(rows: Hashes, cells: Hashes) -> None:
    """Fold the next cell into the hash of each row, in place: ``rows = mix64(rows ^ cells)``."""
    compiled = _compiled()
    if compiled is None:
        rows[:] = partitioning.mix64_array(rows ^ cells)
    else:
        compiled.fold(rows, cells)


def _compiled() -> ModuleType | None:
    """The compiled loops, five times as fast, in a process that uses numba anyway (a worker); importing it is slow."""
    return _kernels() if "numba" in sys.modules else None


@cache
def _kernels() -> ModuleType:
    return importlib.import_module("elasticdl.shared.data.hash_kernels")


def total(hashes: Hashes) -> int:
    """Their sum modulo 2**64."""
    return int(np.add.reduce(hashes, dtype=np.uint64)) & _MASK64


def add(*sums: int) -> int:
    """Sum modulo 2**64."""
    return sum(sums) & _MASK64
