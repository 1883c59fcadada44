"""Taking group states apart by partitions, and putting them together: values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from elasticdl.ps.engine.accumulator import AccumulatorState, Doubles, RowSums, Sums
from elasticdl.ps.engine.dense import DenseCut
from elasticdl.ps.shard.group import GroupCut
from elasticdl.ps.shard.metric_sums import NO_METRICS, has_metrics
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.model.partitioning import (
    DensePart,
    Slices,
    dense_part,
    mask_of,
    partitions_of,
    take,
    within,
)
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.model.signature import DenseVariable
from elasticdl.shared.wire.messages import Floats

_Values = TypeVar("_Values", Floats, Doubles)


def common(one: Ranges, other: Ranges) -> Ranges:
    """Partitions that are in both."""
    return tuple(RangeSet(one).intersection(RangeSet(other)).ranges())


def without(one: Ranges, other: Ranges) -> Ranges:
    """Partitions that are in the first only."""
    return tuple(gap for start, end in one for gap in RangeSet(other).gaps(start, end))


def union(many: Sequence[Ranges]) -> Ranges:
    """Partitions that are in any."""
    return tuple(RangeSet(bounds for ranges in many for bounds in ranges).ranges())


def reduced(cut: GroupCut, partitions: Ranges, variables: Sequence[DenseVariable]) -> GroupCut:
    """A state with only some of its partitions; the history is the same."""
    if partitions == cut.partitions:
        return cut
    outer, inner = dense_part(variables, cut.partitions), dense_part(variables, partitions)
    moving = within(outer.gradients, inner.gradients)
    trainable = cut.dense.state.shape[1]
    sums = cut.accumulated.sums
    accumulated = tuple(place for place in outer.places(inner) if place.stop <= sums.dense.size)
    fixed = tuple(
        slice(place.start - trainable, place.stop - trainable)
        for place in outer.places(inner)
        if place.start >= trainable
    )
    mask = mask_of(partitions)
    tallies = cut.tallies.copy()
    tallies[..., ~mask] = 0
    return replace(
        cut,
        partitions=partitions,
        dense=DenseCut(
            state=np.stack([take(row, moving) for row in cut.dense.state]),
            fixed=take(cut.dense.fixed, fixed).copy(),
        ),
        accumulated=AccumulatorState(
            weight=cut.accumulated.weight,
            sums=Sums(
                dense=take(sums.dense, accumulated).copy(),
                magnitudes=take(sums.magnitudes, within(outer.magnitudes, inner.magnitudes)).copy(),
                rows={name: _only(rows, mask[partitions_of(rows[0])]) for name, rows in sums.rows.items()},
            ),
        ),
        tallies=tallies,
        metrics=cut.metrics if has_metrics(partitions) else NO_METRICS,
    )


def joined(cuts: Sequence[GroupCut], variables: Sequence[DenseVariable]) -> GroupCut:
    """States that have absorbed the same batches as one state; it has the most updates of them."""
    partitions = union([cut.partitions for cut in cuts])
    whole = dense_part(variables, partitions)
    parts = [dense_part(variables, cut.partitions) for cut in cuts]
    rows: dict[str, list[RowSums]] = {}
    for cut in cuts:
        for name, one in cut.accumulated.sums.rows.items():
            rows.setdefault(name, []).append(one)
    slabs = range(len(cuts[0].dense.state))
    values = np.stack([_laid_out(whole, parts, [_values(cut, row) for cut in cuts]) for row in slabs])
    trainable = sum(cut.dense.state.shape[1] for cut in cuts)
    accumulated = sum(cut.accumulated.sums.dense.size for cut in cuts)
    sums = np.empty(whole.size, np.float64)
    magnitudes = np.empty(sum(cut.accumulated.sums.magnitudes.size for cut in cuts), np.float64)
    for part, cut in zip(parts, cuts, strict=True):
        lay_out(whole.places(part), _padded(cut), sums)
        lay_out(within(whole.magnitudes, part.magnitudes), cut.accumulated.sums.magnitudes, magnitudes)
    return replace(
        max(cuts, key=lambda cut: cut.iteration),
        partitions=partitions,
        dense=DenseCut(state=np.ascontiguousarray(values[:, :trainable]), fixed=values[0, trainable:].copy()),
        accumulated=AccumulatorState(
            weight=cuts[0].accumulated.weight,
            sums=Sums(
                dense=sums[:accumulated].copy(),
                magnitudes=magnitudes,
                rows={
                    name: (np.concatenate([ids for ids, _ in many]), np.concatenate([sums for _, sums in many]))
                    for name, many in rows.items()
                },
            ),
        ),
        tallies=np.sum([cut.tallies for cut in cuts], axis=0),
        metrics=next((cut.metrics for cut in cuts if has_metrics(cut.partitions)), NO_METRICS),
    )


def lay_out(places: Slices, values: _Values, out: _Values) -> None:
    """Write values, one after another, where they belong."""
    start = 0
    for place in places:
        stop = start + place.stop - place.start
        out[place] = values[start:stop]
        start = stop


def _laid_out(whole: DensePart, parts: Sequence[DensePart], values: Sequence[Floats]) -> Floats:
    out = np.empty(whole.size, np.float32)
    for part, own in zip(parts, values, strict=True):
        lay_out(whole.places(part), own, out)
    return out


def _values(cut: GroupCut, row: int) -> Floats:
    return np.concatenate([cut.dense.state[row], cut.dense.fixed])


def _padded(cut: GroupCut) -> Doubles:
    sums = cut.accumulated.sums.dense
    frozen = cut.dense.state.shape[1] + cut.dense.fixed.size - sums.size
    return np.concatenate([sums, np.zeros(frozen)])


def _only(rows: RowSums, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> RowSums:
    ids, sums = rows
    return ids[chosen], sums[chosen]
