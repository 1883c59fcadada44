"""Snapshots read back from object storage: chains of manifests, their rows and groups, and shards made of these.

What reads raises ``DamagedError`` with the name of an object that is missing or damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from elasticdl.ps.engine.accumulator import AccumulatorState, RowSums, Sums
from elasticdl.ps.engine.dense import DenseCut
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import GroupCut, UpdatePolicy
from elasticdl.ps.shard.metric_sums import NO_METRICS, MetricTable
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.regrouping import common, reduced, union
from elasticdl.shared.errors import UserError
from elasticdl.shared.model.manifests import Chunk, ChunkPart, GroupState, Manifest, read_chunk, rebuilding
from elasticdl.shared.model.placement import ALL, Ranges
from elasticdl.shared.model.rows.saved_rows import SavedRows
from elasticdl.shared.model.rows.snapshot_rows import Chain, read_rows
from elasticdl.shared.model.signature import EMA_MOMENTUM, ModelSignature, Optimizer
from elasticdl.shared.storage import ObjectStore

_Floats = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int64]
_NO_SLOTS = Optimizer(name="sgd", learning_rate=0.0)
"""Keeps no state of its own."""


def restore(store: ObjectStore, core: PsCore, chain: Chain) -> ModelShard:
    """What the placement gives to a ps, and what it holds for a move, as it was at the last manifest of its chain.

    Raises:
        UserError: the snapshot belongs to another plan.
    """
    wanted = [
        group.partitions if group.move > core.placement.version else common(group.partitions, core.owned)
        for group in chain[-1][1].groups
    ]
    check_belongs(core, *chain[-1])
    return _shard_of(store, core.policy, [(chain, wanted)], held_since=core.placement.version + 1)


def gather(store: ObjectStore, core: PsCore, parts: Sequence[tuple[Chain, Ranges]]) -> ModelShard:
    """What the placement gives to a ps from several snapshots, whether it was served or held there.

    Args:
        parts: chains, and the partitions to take as they were at the last manifest of each.

    Raises:
        UserError: a snapshot belongs to another plan.
    """
    for chain, _ in parts:
        check_belongs(core, *chain[-1])
    return _shard_of(store, core.policy, _wanted(parts))


def gather_weights(
    store: ObjectStore,
    policy: UpdatePolicy,
    parts: Sequence[tuple[Chain, Ranges]],
    rows: Ranges = ALL,
    *,
    averages: bool = False,
    slots: bool = False,
) -> ModelShard:
    """Weights from several snapshots, of any plan: the shard answers pulls, but it can't be trained or saved.

    Args:
        parts: chains, and the partitions to take as they were at the last manifest of each.
        rows: the partitions whose rows are needed; dense values are read of all.
        slots: read what the optimizer keeps, too.
    """
    with rebuilding(_uri_of(parts)):
        keeps_averages = EMA_MOMENTUM in _signature_of(parts[0][0]).optimizer.hyperparameters
    weights_only = not (slots or (averages and keeps_averages))
    return _shard_of(store, policy, _wanted(parts), weights_only=weights_only, rows=rows)


def check_belongs(core: PsCore, uri: str, manifest: Manifest) -> None:
    """Refuse a snapshot of another plan."""
    if manifest.plan != core.plan.fingerprint:
        raise UserError(
            f"the snapshot {uri} is of plan {manifest.plan}, this job's plan is {core.plan.fingerprint}",
            hint="Data, batch size, epochs, shuffle or seed were changed; start a new job.",
        )


def read_groups(store: ObjectStore, shard: ModelShard, snapshot: tuple[str, Manifest]) -> list[GroupCut]:
    """The groups of a snapshot, without their rows."""
    with rebuilding(snapshot[0]):
        return _groups(store, shard, *snapshot)


def _groups(store: ObjectStore, shard: ModelShard, uri: str, manifest: Manifest) -> list[GroupCut]:
    cuts = []
    for number, state in enumerate(manifest.groups):
        empty = shard.create(state.partitions).cut()
        chunks = [chunk for chunk in manifest.chunks if chunk.group == number and chunk.part is not ChunkPart.ROWS]
        cuts.append(
            replace(
                empty,
                dense=_dense(store, uri, chunks, empty.dense),
                tallies=_tallies(store, uri, chunks, empty.tallies),
                accumulated=_accumulated(store, shard, uri, state, chunks, empty.accumulated),
                ledger=state.ledger,
                iteration=state.iteration,
                rate=state.rate,
                rates=state.rates,
                rate_tolerance=state.rate_tolerance,
                move=state.move,
                metrics=_metrics(store, uri, chunks),
            )
        )
    return cuts


def _wanted(parts: Sequence[tuple[Chain, Ranges]]) -> list[tuple[Chain, list[Ranges]]]:
    """Each chain with the partitions to take from each group of its last manifest."""
    return [
        (chain, [common(group.partitions, partitions) for group in chain[-1][1].groups]) for chain, partitions in parts
    ]


def _shard_of(
    store: ObjectStore,
    policy: UpdatePolicy,
    parts: Sequence[tuple[Chain, Sequence[Ranges]]],
    *,
    held_since: int = 0,
    weights_only: bool = False,
    rows: Ranges = ALL,
) -> ModelShard:
    """A shard of some partitions of each group of each chain, with only some ``rows`` of them.

    Groups of a move from ``held_since`` on stay held.
    """
    with rebuilding(_uri_of(parts)):
        signature = _signature_of(parts[0][0])
        shard = ModelShard(replace(signature, optimizer=_NO_SLOTS) if weights_only else signature, policy)
    groups = []
    for chain, wanted in parts:
        with rebuilding(chain[-1][0]):
            _load_rows(store, shard, chain, (union(wanted), rows), signature, weights_only=weights_only)
            for cut, partitions in zip(read_groups(store, shard, chain[-1]), wanted, strict=True):
                if partitions:
                    move = cut.move if held_since and cut.move >= held_since else 0
                    groups.append(shard.group_of(replace(reduced(cut, partitions, shard.signature.dense), move=move)))
    with rebuilding(_uri_of(parts)):
        shard.install(groups)
        shard.merge()
    return shard


def _load_rows(
    store: ObjectStore,
    shard: ModelShard,
    chain: Chain,
    wanted: tuple[Ranges, Ranges],
    signature: ModelSignature,
    *,
    weights_only: bool,
) -> None:
    """Load the rows of those partitions that are in both of ``wanted``."""
    saved = SavedRows(signature, chain)
    for uri, number, ids, slabs in read_rows(store, chain, common(*wanted)):
        with rebuilding(uri):
            if not weights_only:
                shard.stores[number].load(ids, slabs)
            elif number < len(shard.tables):
                shard.stores[number].load(ids, saved.weights(number, ids, slabs))
    if weights_only:
        for number, table in enumerate(shard.tables):
            table.initial_factors = saved.initial_factors(number, wanted[0], table.initial_factors)


def _uri_of(parts: Sequence[tuple[Chain, object]]) -> str:
    """The snapshot whose signature is used."""
    return parts[0][0][-1][0]


def _signature_of(chain: Chain) -> ModelSignature:
    return ModelSignature.from_json(chain[-1][1].signature)


def _dense(store: ObjectStore, uri: str, chunks: Sequence[Chunk], like: DenseCut) -> DenseCut:
    (chunk,) = (chunk for chunk in chunks if chunk.part is ChunkPart.DENSE)
    values = np.frombuffer(read_chunk(store, uri, chunk), np.float32)
    # Weights come first, and slots before fixed values: a cut without slots takes the two ends.
    return DenseCut(
        state=values[: like.state.size].reshape(like.state.shape),
        fixed=values[values.size - like.fixed.size :],
    )


def _tallies(store: ObjectStore, uri: str, chunks: Sequence[Chunk], like: _Ids) -> _Ids:
    for chunk in chunks:
        if chunk.part is ChunkPart.TALLIES:
            return np.frombuffer(read_chunk(store, uri, chunk), np.int64).reshape(like.shape)
    return np.zeros_like(like)


def _metrics(store: ObjectStore, uri: str, chunks: Sequence[Chunk]) -> MetricTable:
    for chunk in chunks:
        if chunk.part is ChunkPart.METRICS:
            return np.frombuffer(read_chunk(store, uri, chunk), np.float64).reshape(chunk.rows, -1)
    return NO_METRICS


def _accumulated(
    store: ObjectStore, shard: ModelShard, uri: str, state: GroupState, chunks: Sequence[Chunk], like: AccumulatorState
) -> AccumulatorState:
    if not state.accumulated:
        return like
    dense = np.zeros(0, np.float64)
    rows: dict[str, RowSums] = {}
    has_magnitudes = shard.signature.optimizer.power > 0
    for chunk in chunks:
        if chunk.part is ChunkPart.ACCUMULATED_DENSE:
            dense = np.frombuffer(read_chunk(store, uri, chunk), np.float64)
        elif chunk.part is ChunkPart.ACCUMULATED_ROWS:
            data, table = read_chunk(store, uri, chunk), shard.tables[chunk.table].table
            ids = np.frombuffer(data, np.int64, chunk.rows)
            values = np.frombuffer(data, np.float64, offset=ids.nbytes)
            rows[table.name] = ids, values.reshape(chunk.rows, table.width * (2 if has_magnitudes else 1))
    gradients = dense.size - like.sums.magnitudes.size
    sums = Sums(dense=dense[:gradients], magnitudes=dense[gradients:], rows=rows)
    return AccumulatorState(weight=state.accumulated, sums=sums)
