"""The hash of a record, and arrays of them.

    record_hash(source, index, raw) = mix64(xxh3_64(raw) ^ derive_key(source, index))

The sum of these modulo 2**64 over a set of records is the checksum that indices and ledgers compare: it does not depend
on the order, and a lost, doubled or exchanged record changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from elasticdl.shared.job.permutation import derive_key, mix64

Hashes = npt.NDArray[np.uint64]

_MASK64 = (1 << 64) - 1
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


def record_hash(source: int, index: int, raw: bytes) -> int:
    """The hash of one record: number ``index`` of source number ``source`` of the plan."""
    return mix64(xxh3_64_intdigest(raw) ^ derive_key(source, index))


def content_hashes(records: Sequence[bytes]) -> Hashes:
    """xxh3_64 of each record; shape ``[len(records)]``."""
    return np.fromiter(map(xxh3_64_intdigest, records), dtype=np.uint64, count=len(records))


def bind(contents: Hashes, source: int, first: int) -> Hashes:
    """Record hashes from content hashes of the consecutive records ``first``, ``first + 1``... of a source."""
    indices = np.arange(first, first + len(contents), dtype=np.uint64)
    keys = mix64_array(np.uint64(derive_key(source)) ^ indices)
    return mix64_array(contents ^ keys)


def mix64_array(values: Hashes) -> Hashes:
    """``mix64`` of each value; arithmetic on uint64 arrays wraps, as it should."""
    values = values + _GAMMA
    values ^= values >> _S30
    values *= _FACTOR_1
    values ^= values >> _S27
    values *= _FACTOR_2
    values ^= values >> _S31
    return values


def total(hashes: Hashes) -> int:
    """Their sum modulo 2**64."""
    return int(np.add.reduce(hashes, dtype=np.uint64)) & _MASK64


def add(*sums: int) -> int:
    """Sum modulo 2**64."""
    return sum(sums) & _MASK64
