"""Which ps holds what: the worker and the ps compute the same.

A partition is the rows whose ids hash to it, and one 256th of the dense variables: those of one kind are laid end to
end and cut into 256 equal lengths. Each kind for itself, because a ps' load depends on it: only trainable elements have
gradients and slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.placement import PARTITIONS, Placement, Ranges
from elasticdl.shared.model.signature import DenseVariable, VariableKind

_SALT = np.uint64(0x6A09E667F3BCC909)
"""Makes the partition independent of the hash that a table's index uses for the same id."""
Words = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FACTOR_1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR_2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


def partitions_of(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The virtual partition of each id: the top 8 bits of its hash."""
    return (hashes_of(ids) >> np.uint64(56)).astype(np.uint8)


def hashes_of(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """The mix64 hash of each id; different ids have different hashes."""
    return mix64_array(ids.view(np.uint64) ^ _SALT)


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Ids sorted by their owner.

    Attributes:
        order: int64[n], position in the caller's ids of each sorted one; None: there is one owner, nothing was sorted.
        ids: int64[n], the sorted ids.
        bounds: one more entry than there are holders; the i-th of ``Placement.holders`` owns
            ``ids[bounds[i]:bounds[i + 1]]``.
    """

    order: npt.NDArray[np.intp] | None
    ids: npt.NDArray[np.int64]
    bounds: tuple[int, ...]

    def part(self, holder: int) -> slice:
        """Which of the sorted ids the holder at this position owns."""
        return slice(self.bounds[holder], self.bounds[holder + 1])

    def places(self, holder: int) -> npt.NDArray[np.intp]:
        """Positions in the caller's ids of what the holder at this position owns, of several holders."""
        assert self.order is not None
        return self.order[self.part(holder)]

    def owned(self, holder: int) -> npt.NDArray[np.int64]:
        """The ids that the holder at this position owns."""
        return self.ids if self.order is None else self.ids[self.part(holder)]


def split_rows(ids: npt.NDArray[np.int64], placement: Placement) -> RowSplit:
    """Sort ids by owner; the order within an owner is the caller's."""
    positions, holders = _positions(placement)
    if holders == 1:
        return one_owner(ids)
    owners = positions[partitions_of(ids)]
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=holders)
    return RowSplit(order, ids[order], (0, *np.cumsum(counts).tolist()))


def one_owner(ids: npt.NDArray[np.int64]) -> RowSplit:
    """Ids that all belong to one holder."""
    return RowSplit(None, ids, (0, ids.size))


@lru_cache(maxsize=16)
def _positions(placement: Placement) -> tuple[npt.NDArray[np.uint8], int]:
    """For each partition the position of its owner among the holders, and how many there are."""
    holders = placement.holders
    return np.searchsorted(np.asarray(holders), np.asarray(placement.owners)).astype(np.uint8), len(holders)


def mask_of(partitions: Ranges) -> npt.NDArray[np.bool_]:
    """bool[256]: whether a partition is among these."""
    mask = np.zeros(PARTITIONS, np.bool_)
    for start, end in partitions:
        mask[start:end] = True
    return mask


@dataclass(frozen=True, slots=True)
class Block:
    """Elements ``[start, stop)`` of the flattened (row-major) dense variable number ``variable`` of the signature."""

    variable: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.variable < 0 or not 0 <= self.start < self.stop:
            raise ValueError(f"not a block: {self}")

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start


Slices = tuple[slice, ...]
_F = TypeVar("_F", np.float32, np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class DensePart:
    """The dense elements of some partitions, in this order: trainable ones, statistics, frozen ones.

    Attributes:
        blocks: in that order.
        runs: the same as slices of the flat vector over all variables in the signature's order, neighbours joined.
        kinds: for each kind, its slices of the flat vector over the variables of that kind.
        magnitudes: slices of the flat vector over the gathered variables.
        pushed: slices of what a worker pushes: the flat gradient, followed by the magnitudes.
    """

    blocks: tuple[Block, ...]
    runs: Slices
    kinds: tuple[Slices, ...]
    magnitudes: Slices
    pushed: Slices
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _length(self.runs))

    @property
    def gradients(self) -> Slices:
        """Slices of the flat vector over the trainable variables."""
        return self.kinds[0]

    @property
    def statistics(self) -> Slices:
        """Slices of the flat vector over the statistics."""
        return self.kinds[1]

    def gather(self, flat: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The part's values, in its order, out of the flat vector over all variables."""
        return take(flat, self.runs)

    def scatter(self, values: npt.NDArray[np.float32], flat: npt.NDArray[np.float32]) -> None:
        """Write the part's values, in its order, where they belong in the flat vector over all variables."""
        start = 0
        for run in self.runs:
            stop = start + run.stop - run.start
            flat[run] = values[start:stop]
            start = stop

    def places(self, inner: DensePart) -> Slices:
        """Where the elements of a part of this part are among this part's, in the inner one's order."""
        places: list[slice] = []
        offset = 0
        for mine, theirs in zip(self.kinds, inner.kinds, strict=True):
            places += [slice(offset + one.start, offset + one.stop) for one in within(mine, theirs)]
            offset += _length(mine)
        return tuple(places)


def take(flat: npt.NDArray[_F], places: Slices) -> npt.NDArray[_F]:
    """The elements at some places, one after another; a view if there is one place."""
    match len(places):
        case 0:
            return flat[:0]
        case 1:
            return flat[places[0]]
        case _:
            return np.concatenate([flat[place] for place in places])


def within(outer: Slices, inner: Slices) -> Slices:
    """Where the elements of ``inner`` are among those of ``outer``, laid end to end; each lies in one of them whole."""
    found, offset, number = [], 0, 0
    for one in inner:
        while outer[number].stop < one.stop:
            offset += outer[number].stop - outer[number].start
            number += 1
        start = offset + one.start - outer[number].start
        found.append(slice(start, start + one.stop - one.start))
    return tuple(found)


def dense_part(variables: Sequence[DenseVariable], partitions: Ranges) -> DensePart:
    """The dense elements of some partitions."""
    totals = [sum(variable.size for variable in variables if variable.kind is kind) for kind in VariableKind]
    kinds = tuple(
        tuple(
            slice(total * start // PARTITIONS, total * end // PARTITIONS)
            for start, end in partitions
            if total * start // PARTITIONS < total * end // PARTITIONS
        )
        for total in totals
    )
    blocks = [
        block
        for kind, wanted in zip(VariableKind, kinds, strict=True)
        for one in wanted
        for block in _blocks(variables, kind, one)
    ]
    magnitudes = _runs([one if one.gathered else None for one in variables], blocks)
    trainable = totals[0]
    return DensePart(
        blocks=tuple(blocks),
        runs=_runs(variables, blocks),
        kinds=kinds,
        magnitudes=magnitudes,
        pushed=_joined([*kinds[0], *(slice(trainable + one.start, trainable + one.stop) for one in magnitudes)]),
    )


def dense_parts(variables: Sequence[DenseVariable], placement: Placement) -> tuple[DensePart, ...]:
    """The dense elements of each of the placement's holders."""
    return tuple(dense_part(variables, placement.partitions(ps)) for ps in placement.holders)


def _length(slices: Slices) -> int:
    return sum(one.stop - one.start for one in slices)


def _blocks(variables: Sequence[DenseVariable], kind: VariableKind, wanted: slice) -> Iterator[Block]:
    """The blocks of the variables of one kind, laid end to end, that fall into ``wanted``."""
    offset = 0
    for number, variable in enumerate(variables):
        if variable.kind is not kind:
            continue
        start, stop = max(wanted.start - offset, 0), min(wanted.stop - offset, variable.size)
        if start < stop:
            yield Block(number, start, stop)
        offset += variable.size


def _runs(variables: Sequence[DenseVariable | None], blocks: Sequence[Block]) -> Slices:
    """Slices of the flat vector over the variables, those aside that are None."""
    firsts = [0, *accumulate(variable.size if variable else 0 for variable in variables)]
    here = [block for block in blocks if variables[block.variable]]
    return _joined([slice(firsts[one.variable] + one.start, firsts[one.variable] + one.stop) for one in here])


def _joined(slices: Sequence[slice]) -> Slices:
    """The same with neighbours joined."""
    joined: list[slice] = []
    for one in slices:
        if joined and joined[-1].stop == one.start:
            joined[-1] = slice(joined[-1].start, one.stop)
        else:
            joined.append(one)
    return tuple(joined)


def mix64_array(values: Words) -> Words:
    """``elasticdl.shared.job.permutation.mix64`` of each value; products of uint64 arrays wrap, as they should."""
    values = values + _GAMMA
    values ^= values >> _S30
    values *= _FACTOR_1
    values ^= values >> _S27
    values *= _FACTOR_2
    values ^= values >> _S31
    return values
