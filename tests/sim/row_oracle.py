"""Whether rows that catch up have the values of a dense variable: the dense weights say in which order to compare.

A simulated model has one weight per partition and batch. Where the optimizer has a memory, such a weight (or its slot)
also says in which update the batch was learned. So each partition's own history is read from the final snapshot,
whatever was repeated, moved or restored. The reference makes the same updates, each of all rows (``dense_updates``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tests.sim.dense_updates import OPTIMIZERS, TableUpdates, traces
from tests.sim.job import MIN_COUNT, REPEATED, REPETITION, ROWS, WIDTH, SimJob, rows_of

from elasticdl.ps.engine.tracked_rows import TableFigures
from elasticdl.ps.shard.group import Group
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.model.partitioning import mask_of, partitions_of
from elasticdl.shared.wire.messages import Floats, TableIds

Order = tuple[tuple[int, ...], ...]
"""The batches of each update, by their numbers."""

TOLERANCE = 2e-5
"""Of the largest weight that a row has had. The sum of the movements of an Adam row ends when 0.001 % of it is left.
The errors of float32 are smaller: 6e-7 in 1,600 seeds. A wrong number of updates changes a row by percents."""
_TRACE_TOLERANCE = 1e-3
"""Relative. The traces of two updates differ by at least 5 %; rounding changes one by 1e-5 in 400 updates."""
_IDS = np.arange(ROWS, dtype=np.int64)


class NoOrderError(Exception):
    """The dense weights of a partition are not the result of any order of updates."""


def order_of(job: SimJob, trace: Floats) -> Order:
    """In which updates batches were learned.

    Args:
        job: says how much a batch counts in its update.
        trace: float32[batches], of one partition.

    Raises:
        NoOrderError: a batch was not learned once, or updates are not of whole rounds.
    """
    learned = np.flatnonzero(trace)
    shares = job.shares[learned]
    updates = round(float(shares.sum()))
    if not updates:
        if learned.size:
            raise NoOrderError(f"the batches {learned.tolist()} were learned, and none of them should be")
        return ()
    known = traces(job.shape.optimizer, updates)
    ratios = trace[learned, np.newaxis] / np.maximum(shares[:, np.newaxis], 1e-30) / known
    nearest = np.abs(ratios - 1).argmin(axis=1)
    wrong = np.abs(ratios[np.arange(learned.size), nearest] - 1) > _TRACE_TOLERANCE
    if wrong.any():
        raise NoOrderError(f"batches {learned[wrong].tolist()} were not learned once, in one of {updates} updates")
    weights = np.bincount(nearest, weights=shares, minlength=updates)
    if (np.abs(weights - 1) > 1e-6).any():
        raise NoOrderError(f"updates {np.flatnonzero(np.abs(weights - 1) > 1e-6).tolist()} are not of one round each")
    return tuple(tuple(learned[nearest == update].tolist()) for update in range(updates))


def wrong_rows(job: SimJob, ps: str, shard: ModelShard, planned: int) -> list[str]:
    """What is wrong with the batches and rows of a shard of a job whose rows catch up.

    Args:
        job: the job.
        ps: name of the ps.
        shard: restored from its final snapshot.
        planned: batches that the plan has had in the end; the first ones of ``SimJob.batches``.
    """
    problems: list[str] = []
    references: list[tuple[npt.NDArray[np.bool_], Sequence[TableUpdates]]] = []
    for group in shard.groups:
        mask = mask_of(group.partitions)
        partitions = np.flatnonzero(mask)
        # Partitions of one group have one history; were it not so, each of them would be judged by its own.
        orders: dict[bytes, list[int]] = {}
        for partition, row in zip(partitions, _traces(job, group), strict=True):
            orders.setdefault(row.tobytes(), []).append(int(partition))
        for trace, owners in orders.items():
            try:
                order = order_of(job, np.frombuffer(trace, np.float32))
            except NoOrderError as error:
                problems.append(f"{ps}: {error}")
                continue
            problems += _wrong_batches(job, ps, order, planned)
            references.append((np.isin(partitions_of(_IDS), owners), _reference(job, order)))
    return problems or _differing(job, ps, shard, references)


def _traces(job: SimJob, group: Group) -> Floats:
    """float32[partitions, batches]."""
    state = group.dense.cut().state
    trace: Floats = state[min(1, len(state) - 1)].reshape(-1, len(job.batches))
    return trace


def _wrong_batches(job: SimJob, ps: str, order: Order, planned: int) -> list[str]:
    found = sorted(number for batches in order for number in batches)
    expected = [number for number in range(planned) if not job.is_empty(number)]
    if found == expected:
        return []
    return [
        f"{ps}: batches {sorted(set(found) ^ set(expected))} were learned and should not be, or the other way round"
    ]


def _reference(job: SimJob, order: Order) -> list[TableUpdates]:
    """Every table after the updates of an order."""
    tables = [TableUpdates(OPTIMIZERS[job.shape.optimizer], table, ROWS) for table in job.signature.tables]
    for batches in order:
        pushed = [job.row_gradients(number) for number in batches]
        for reference in tables:
            gradients, squares = np.zeros((2, *reference.weights.shape))
            touched = np.zeros(ROWS, np.bool_)
            for number, rows in zip(batches, pushed, strict=True):
                ids, values = rows[reference.table.name]
                of_batch = values.astype(np.float64) ** 2
                of_batch[REPEATED] *= REPETITION
                gradients[ids] += job.shares[number] * values
                squares[ids] += job.shares[number] ** 2 * of_batch
                touched[ids] = True
            reference.update(gradients, squares, touched)
    return tables


def _differing(
    job: SimJob, ps: str, shard: ModelShard, references: Sequence[tuple[npt.NDArray[np.bool_], Sequence[TableUpdates]]]
) -> list[str]:
    problems = []
    figures = shard.table_figures()
    for number, table in enumerate(job.signature.tables):
        found = np.empty((ROWS, table.width), np.float32)
        shard.pull((TableIds(table=number, width=table.width, ids=_IDS),), found.reshape(-1), None)
        expected = np.zeros(4, np.int64)
        for owned, tables in references:
            one = tables[number]
            error = np.abs(found - one.weights).max(axis=1)
            wrong = np.flatnonzero(owned & (error > TOLERANCE * one.largest))
            if wrong.size:
                problems.append(f"{ps}: rows {wrong.tolist()} of table {table.name} are not those of dense updates")
            counted = np.stack([one.is_stored, one.is_candidate, one.admitted, one.dropped])
            expected += counted[:, owned].sum(axis=1)
        rows, candidates, admitted, dropped = expected.tolist()
        wanted = TableFigures(rows=rows, candidates=candidates, admitted=admitted, dropped=dropped)
        is_tracked = table.min_count > 1 or table.expire_after > 0
        if (is_tracked or table.name in figures) and figures.get(table.name) != wanted:
            problems.append(f"{ps}: table {table.name} has {figures.get(table.name)}, not {wanted}")
    return problems


def wrong_copies(ps: str, shard: ModelShard, weights: ModelShard, exported: tuple[Floats, Floats] | None) -> list[str]:
    """What is wrong with weights that were read in other ways than by a ps that is restored: all have the same bits.

    Args:
        ps: name of the ps.
        shard: restored from its final snapshot.
        weights: read from the snapshot without slots, as an evaluation or an export of it does.
        exported: dense values and rows of the first table, as the running ps answered them; None: there is no export.
    """
    ids = _IDS[mask_of(shard.partitions)[partitions_of(_IDS)]]
    problems = []
    for number, store in enumerate(shard.tables):
        width = store.table.width
        found, copied = np.empty(ids.size * width, np.float32), np.empty(ids.size * width, np.float32)
        for source, out in ((shard, found), (weights, copied)):
            source.pull((TableIds(table=number, width=width, ids=ids),), out, None)
        if not np.array_equal(found, copied):
            problems.append(f"{ps}: a reader of the snapshot finds other rows of table {store.table.name}")
        if number == 0 and exported and not np.array_equal(found, exported[1]):
            problems.append(f"{ps}: the exported rows are not those of the final snapshot")
    values = np.empty(shard.part.size, np.float32)
    shard.pull((), np.empty(0, np.float32), values)
    if exported and not np.array_equal(values, exported[0]):
        problems.append(f"{ps}: the exported dense weights are not those of the final snapshot")
    return problems


def wrong_sums(job: SimJob, ps: str, counts: Floats, shard: ModelShard) -> list[str]:
    """What is wrong with the rows of a job with plain SGD: they are sums, in whichever order batches were learned.

    Args:
        job: the job.
        ps: name of the ps.
        counts: float32[partitions, batches + 1], how often each partition of the shard has learned each batch.
        shard: restored from its final snapshot.
    """
    partitions = np.flatnonzero(mask_of(shard.partitions))
    owners = partitions_of(_IDS)
    ids = _IDS[np.isin(owners, partitions)]
    places = {int(partition): place for place, partition in enumerate(partitions)}
    expected = np.zeros((ROWS, WIDTH), np.float64)
    for number in range(len(job.batches)):
        for row, added in zip(*rows_of(number), strict=True):
            place = places.get(int(owners[row]))
            if place is not None:
                expected[row] += float(counts[place, number]) * added
    found = np.empty((ids.size, WIDTH), np.float32)
    shard.pull((TableIds(table=0, width=WIDTH, ids=ids),), found.reshape(-1), None)
    problems = _wrong_counts(job, ps, partitions, counts, shard) if job.shape.counted else []
    if np.allclose(found, expected[ids], atol=1e-3):
        return problems
    wrong = ids[np.abs(found - expected[ids]).max(axis=1) > 1e-3].tolist()
    return [f"{ps}: rows {wrong} do not hold what the dense weights say was learned", *problems]


def _wrong_counts(
    job: SimJob, ps: str, partitions: npt.NDArray[np.int64], counts: Floats, shard: ModelShard
) -> list[str]:
    """Each update counted once for the rows that are admitted by count, in whichever order updates were made."""
    owners = partitions_of(_IDS)
    seen = np.zeros(ROWS, np.int64)
    for number in range(len(job.batches)):
        ids, _ = rows_of(number)
        place = np.searchsorted(partitions, owners[ids])
        here = np.isin(owners[ids], partitions)
        seen[ids[here]] += counts[place[here], number] > 0
    ids = np.flatnonzero(np.isin(owners, partitions))
    found = np.empty((ids.size, 1), np.float32)
    shard.pull((TableIds(table=1, width=1, ids=ids),), found.reshape(-1), None)
    wrong = ids[found[:, 0] != np.maximum(0, seen[ids] - MIN_COUNT + 1)].tolist()
    problems = [f"{ps}: rows {wrong} of the counted table do not say how many updates followed"] if wrong else []
    expected = TableFigures(
        rows=int(np.count_nonzero(seen >= MIN_COUNT)),
        candidates=int(np.count_nonzero((seen > 0) & (seen < MIN_COUNT))),
        admitted=int(np.count_nonzero(seen >= MIN_COUNT)),
        dropped=int(np.minimum(seen, MIN_COUNT - 1).sum()),
    )
    figures = shard.table_figures()["tracked"]
    return problems + ([f"{ps}: the counted table has {figures}, not {expected}"] if figures != expected else [])
