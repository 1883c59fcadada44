"""Which ps holds what: the worker and the ps compute the same.

Rows: an id hashes to one of 256 virtual partitions, a versioned table says which ps owns the partition. Dense:
variables of one kind are laid end to end and cut into equal lengths, one for each ps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model import DenseVariable, VariableKind

PARTITIONS = 256
_SALT = np.uint64(0x6A09E667F3BCC909)
"""Makes the partition independent of the hash that a table's index uses for the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The versioned table from partition to ps.

    Attributes:
        version: numbered from 1; a push that was split by another version is answered MOVED.
        owners: position of the owning ps for each of the 256 partitions.
    """

    version: int
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.owners) != PARTITIONS or min(self.owners) < 0:
            raise ValueError(f"a placement names an owner for each of {PARTITIONS} partitions")

    @classmethod
    def even(cls, ps: int) -> Placement:
        """Version 1: partitions dealt out in turn."""
        if not 1 <= ps <= PARTITIONS:
            raise ValueError(f"{ps} ps: there can be 1 to {PARTITIONS}")
        return cls(version=1, owners=tuple(partition % ps for partition in range(PARTITIONS)))

    @property
    def ps(self) -> int:
        """How many ps there are."""
        return max(self.owners) + 1


def partitions_of(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The virtual partition of each id: the top 8 bits of its mix64 hash."""
    with np.errstate(over="ignore"):
        value = (ids.view(np.uint64) ^ _SALT) + np.uint64(0x9E3779B97F4A7C15)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        value = value ^ (value >> np.uint64(31))
    return (value >> np.uint64(56)).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Ids sorted by their owner.

    Attributes:
        order: int64[n], position in the caller's ids of each sorted one; None: there is one owner, nothing was sorted.
        ids: int64[n], the sorted ids.
        bounds: one more entry than there are ps; ps ``i`` owns ``ids[bounds[i]:bounds[i + 1]]``.
    """

    order: npt.NDArray[np.intp] | None
    ids: npt.NDArray[np.int64]
    bounds: tuple[int, ...]

    def part(self, ps: int) -> slice:
        """Which of the sorted ids a ps owns."""
        return slice(self.bounds[ps], self.bounds[ps + 1])


def split_rows(ids: npt.NDArray[np.int64], placement: Placement) -> RowSplit:
    """Sort ids by owner; the order within an owner is the caller's."""
    if placement.ps == 1:
        return RowSplit(None, ids, (0, ids.size))
    owners = np.asarray(placement.owners, np.uint8)[partitions_of(ids)]
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=placement.ps)
    return RowSplit(order, ids[order], (0, *np.cumsum(counts).tolist()))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DensePart:
    """What one ps holds of the dense variables.

    Attributes:
        blocks: in the ps' order: trainable ones, statistics, frozen ones.
        runs: the same as slices of the flat vector over all variables in the signature's order, neighbours joined.
        gradients: slice of the flat vector over the trainable variables.
        statistics: slice of the flat vector over the statistics.
    """

    blocks: tuple[Block, ...]
    runs: tuple[slice, ...]
    gradients: slice
    statistics: slice

    @property
    def size(self) -> int:
        """Number of elements."""
        return sum(run.stop - run.start for run in self.runs)

    def gather(self, flat: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The part's values, in the ps' order, out of the flat vector over all variables."""
        return np.concatenate([flat[run] for run in self.runs]) if self.runs else flat[:0]

    def scatter(self, values: npt.NDArray[np.float32], flat: npt.NDArray[np.float32]) -> None:
        """Write the part's values, in the ps' order, where they belong in the flat vector over all variables."""
        start = 0
        for run in self.runs:
            stop = start + run.stop - run.start
            flat[run] = values[start:stop]
            start = stop


def dense_parts(variables: Sequence[DenseVariable], ps: int) -> tuple[DensePart, ...]:
    """Share the dense variables out: each kind laid end to end and cut into ``ps`` equal lengths.

    Each kind for itself, because a ps' load depends on it: only trainable elements have gradients and slots.
    """
    totals = {kind: sum(variable.size for variable in variables if variable.kind is kind) for kind in VariableKind}

    def bounds(kind: VariableKind, part: int) -> slice:
        return slice(totals[kind] * part // ps, totals[kind] * (part + 1) // ps)

    parts = []
    for part in range(ps):
        blocks = [block for kind in VariableKind for block in _blocks(variables, kind, bounds(kind, part))]
        parts.append(
            DensePart(
                blocks=tuple(blocks),
                runs=_runs(variables, blocks),
                gradients=bounds(VariableKind.TRAINABLE, part),
                statistics=bounds(VariableKind.STATISTIC, part),
            )
        )
    return tuple(parts)


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


def _runs(variables: Sequence[DenseVariable], blocks: Sequence[Block]) -> tuple[slice, ...]:
    firsts = [0, *accumulate(variable.size for variable in variables)]
    runs: list[slice] = []
    for block in blocks:
        start = firsts[block.variable] + block.start
        stop = start + block.size
        if runs and runs[-1].stop == start:
            runs[-1] = slice(runs[-1].start, stop)
        else:
            runs.append(slice(start, stop))
    return tuple(runs)
