"""What the objects of a snapshot are: chunks of a cut, encoded one at a time, and the manifest last.

    STORAGE/JOB/snapshots/PS/INCARNATION-NUMBER/{dense,rows-TABLE-CHUNK,...,manifest}
    STORAGE/JOB/snapshots/job-DIGEST
    STORAGE/JOB/snapshots/RECIPIENT/INCARNATION-NUMBER/{dense,rows-TABLE-CHUNK,...,copy}

A snapshot is full, or adds the rows that changed since its base; a chain of bases ends in a full snapshot. No key is
written twice: a key contains the incarnation and a number. The donor writes a copy for a move into the recipient's
folder, and the recipient's snapshots may refer to its objects: each ps deletes objects in its own folder only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import GroupCut
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.regrouping import common, reduced, union
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.ps.snapshots.references import referred
from elasticdl.ps.snapshots.requests import CopyTarget
from elasticdl.ps.snapshots.uploads import COPY_WRITERS, SnapshotUpload
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.model.manifests import (
    CHUNK_BYTES,
    COPY_NAME,
    MANIFEST_NAME,
    Chunk,
    ChunkPart,
    GroupState,
    Manifest,
    checksum_of,
    encode_manifest,
    snapshots_folder,
)
from elasticdl.shared.model.partitioning import mask_of
from elasticdl.shared.model.placement import ALL, Ranges
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.model.stored_spec import StoredSpec
from elasticdl.shared.names import Incarnation, PodName

_Floats = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int64]


class SnapshotWriter:
    """Encodes the snapshots of one incarnation of one ps. Does no I/O."""

    def __init__(self, spec: JobSpec, ps: PodName, incarnation: Incarnation) -> None:
        self._spec = spec
        self.stored_spec = StoredSpec(spec)
        """The object that all manifests refer to. It is written before the cut of a snapshot, if it is missing."""
        self.ps = ps
        self._incarnation = incarnation

    def upload(
        self, core: PsCore, cut: ShardCut, *, number: int, base: str = "", copy: CopyTarget | None = None
    ) -> SnapshotUpload:
        """The upload of a cut. Objects are encoded when they are asked for; arguments as ``objects``."""
        parallel = COPY_WRITERS if copy else 1
        ahead = COPY_WRITERS if copy else 0
        objects = self.objects(core, cut, number=number, base=base, copy=copy, ahead=ahead)
        return SnapshotUpload(objects, parallel=parallel)

    def objects(
        self, core: PsCore, cut: ShardCut, *, number: int, base: str, copy: CopyTarget | None = None, ahead: int = 0
    ) -> Iterator[tuple[str, bytes | memoryview]]:
        """The objects of a snapshot in the order in which they have to be written: the manifest last.

        Args:
            number: unique within the incarnation.
            base: manifest URI that the cut adds to; empty: the snapshot is full.
            copy: write a copy for a move; None: write a snapshot of this ps.
            ahead: how many objects are asked for before one is written.

        Yields:
            URI and bytes. The bytes are valid until ``ahead`` + 1 other objects were asked for.
        """
        shard = core.shard
        if shard is None:
            raise InvariantError("a cut without a shard")
        folder = self._folder(copy.recipient if copy else self.ps, number)
        groups = _copied(shard, cut, copy.partitions) if copy else cut.groups
        chunks: list[Chunk] = []
        partitions = union([group.partitions for group in groups])
        wanted = None if partitions == ALL else mask_of(partitions)
        for data, chunk in _encoded(shard, cut, groups, wanted, ahead + 1):
            yield folder + chunk.name, data
            chunks.append(replace(chunk, size_bytes=len(data), checksum=checksum_of(data)))
        states = [
            GroupState(
                partitions=group.partitions,
                move=group.move,
                ledger=group.ledger,
                iteration=group.iteration,
                rate=group.rate,
                accumulated=group.accumulated.weight,
                rates=group.rates,
                rate_tolerance=group.rate_tolerance,
            )
            for group in groups
        ]
        manifest = self._manifest(core, shard.signature, number, base, states, chunks)
        yield folder + (COPY_NAME if copy else MANIFEST_NAME), encode_manifest(manifest)

    def reference(
        self, core: PsCore, base: Snapshot | None, copies: Sequence[Snapshot], *, number: int, move: int
    ) -> tuple[str, bytes]:
        """URI and bytes of a manifest that refers to the last snapshot and to the held groups; see ``referred``."""
        groups, chunks = referred(base, copies, move)
        signature = ModelSignature.from_json(copies[-1][1].signature)
        manifest = self._manifest(core, signature, number, base[0] if base else "", groups, chunks)
        return self._folder(self.ps, number) + MANIFEST_NAME, encode_manifest(manifest)

    def _folder(self, ps: PodName, number: int) -> str:
        return snapshots_folder(self._spec.storage, self._spec.job, ps, f"{self._incarnation}-{number:06d}")

    def _manifest(
        self,
        core: PsCore,
        signature: ModelSignature,
        number: int,
        base: str,
        groups: Iterable[GroupState],
        chunks: Iterable[Chunk],
    ) -> Manifest:
        return Manifest(
            job=self._spec.job,
            ps=self.ps,
            incarnation=self._incarnation,
            number=number,
            base=base,
            plan=core.plan.fingerprint,
            spec_digest=self.stored_spec.digest,
            signature=signature.to_json(),
            placement_version=core.placement.version,
            groups=tuple(groups),
            chunks=tuple(chunks),
        )


def _copied(shard: ModelShard, cut: ShardCut, partitions: Ranges) -> Sequence[GroupCut]:
    """The parts of a cut's served groups that are in some partitions."""
    wanted = [(group, common(group.partitions, partitions)) for group in cut.served]
    return [reduced(group, inner, shard.signature.dense) for group, inner in wanted if inner]


def _encoded(
    shard: ModelShard, cut: ShardCut, groups: Sequence[GroupCut], partitions: npt.NDArray[np.bool_] | None, buffers: int
) -> Iterator[tuple[bytes | memoryview, Chunk]]:
    """The chunks of a cut, without sizes and checksums."""

    def chunk(name: str, part: ChunkPart, table: int = 0, rows: int = 0, group: int = 0) -> Chunk:
        return Chunk(name=name, part=part, table=table, rows=rows, group=group, size_bytes=0, checksum=b"")

    for number, group in enumerate(groups):
        yield _bytes(group.dense.state, group.dense.fixed), chunk(f"dense-{number}", ChunkPart.DENSE, group=number)
        if group.tallies.size:
            yield group.tallies.tobytes(), chunk(f"tallies-{number}", ChunkPart.TALLIES, group=number)
        if epochs := len(group.metrics):
            yield (
                group.metrics.tobytes(),
                chunk(f"metrics-{number}", ChunkPart.METRICS, rows=epochs, group=number),
            )
    for table, (store, rows_cut) in enumerate(zip(shard.stores, cut.rows, strict=True)):
        rows_max = max(1, CHUNK_BYTES // (8 + 4 * store.slab_width))
        for number, (rows, data) in enumerate(rows_cut.packed(rows_max, partitions, buffers=buffers)):
            yield data.data, chunk(f"rows-{table}-{number:05d}", ChunkPart.ROWS, table, rows)
    numbers = {store.table.name: number for number, store in enumerate(shard.tables)}
    for number, group in enumerate(groups):
        sums = group.accumulated.sums
        if not group.accumulated.weight:
            continue
        what = ChunkPart.ACCUMULATED_DENSE
        yield _bytes(sums.dense, sums.magnitudes), chunk(f"accumulated-{number}", what, group=number)
        for name, (ids, added) in sums.rows.items():
            table, what = numbers[name], ChunkPart.ACCUMULATED_ROWS
            yield _bytes(ids, added), chunk(f"accumulated-{number}-{table}", what, table, ids.size, number)


def _bytes(*arrays: npt.NDArray[np.generic]) -> bytes:
    """Concatenate arrays with one copy: a copy holds the GIL, and pushes wait for it."""
    return b"".join([array.reshape(-1).view(np.uint8).data for array in arrays])
