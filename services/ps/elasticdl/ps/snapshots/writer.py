"""Snapshots on object storage: written chunk by chunk from a cut, the manifest last, and deleted.

    STORAGE/JOB/snapshots/PS/INCARNATION-NUMBER/{dense,rows-TABLE-CHUNK,...,manifest}
    STORAGE/JOB/snapshots/RECIPIENT/INCARNATION-NUMBER/{dense,rows-TABLE-CHUNK,...,copy}

A snapshot is full, or adds the rows that changed since its base; a chain of bases ends in a full one. A key is never
written twice: it contains the incarnation and a number. A copy for a move is written by the donor and belongs to the
recipient, whose snapshots may refer to its objects: what lies in a ps' folder is deleted by that ps and by nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import GroupCut
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.regrouping import common, reduced, union
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.ps.snapshots.references import folders_of, referred
from elasticdl.ps.snapshots.requests import Copy
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.codec import encode_spec
from elasticdl.shared.model.manifests import (
    COPY_NAME,
    MANIFEST_NAME,
    Chunk,
    ChunkPart,
    GroupState,
    Manifest,
    checksum_of,
    chunk_uri,
    decode_manifest,
    encode_manifest,
    snapshots_folder,
)
from elasticdl.shared.model.partitioning import mask_of
from elasticdl.shared.model.placement import ALL, Ranges
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.storage import ObjectInfo, ObjectStore, remove_empty_folders

CHUNK_BYTES = 8 << 20
"""Size of a chunk of rows, about: what is copied under a table's lock, and held in memory twice while it is written."""

_COPY_WRITERS = 3
"""Objects of a copy that are written at a time: pushes will wait for the last copy. For a snapshot nobody waits."""

_Floats = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A snapshot that is complete on storage.

    Attributes:
        uri: its manifest.
        manifest: what is in it.
        size_bytes: bytes written.
    """

    uri: str
    manifest: Manifest
    size_bytes: int


class SnapshotWriter:
    """Writes the snapshots of one incarnation of one ps.

    Args:
        store: where to.
        spec: the job.
        ps: whose.
        incarnation: in which life.
    """

    def __init__(self, store: ObjectStore, spec: JobSpec, ps: PodName, incarnation: Incarnation) -> None:
        self._store = store
        self._spec = spec
        self._encoded_spec = encode_spec(spec)
        self._ps = ps
        self._incarnation = incarnation

    def write(self, core: PsCore, cut: ShardCut, *, number: int, base: str, copy: Copy | None = None) -> Written:
        """Write a cut; pushes go on meanwhile. Arguments as ``objects``.

        Raises:
            TransientError, PermanentError: the store; what was written so far is garbage that nothing refers to.
        """
        size_bytes, uri, ahead = 0, "", _COPY_WRITERS if copy else 0
        data: bytes | memoryview = b""
        writing: deque[Future[ObjectInfo]] = deque()
        with ThreadPoolExecutor(_COPY_WRITERS, thread_name_prefix="objects") as pool:
            for uri, data in self.objects(core, cut, number=number, base=base, copy=copy, ahead=ahead):
                size_bytes += len(data)
                is_last = uri.endswith((MANIFEST_NAME, COPY_NAME))
                while writing and (is_last or len(writing) == _COPY_WRITERS):
                    writing.popleft().result()
                if copy and not is_last:
                    writing.append(pool.submit(self._store.write, uri, data))
                else:
                    self._store.write(uri, data)
        return Written(uri=uri, manifest=decode_manifest(bytes(data), uri), size_bytes=size_bytes)

    def objects(
        self, core: PsCore, cut: ShardCut, *, number: int, base: str, copy: Copy | None = None, ahead: int = 0
    ) -> Iterator[tuple[str, bytes | memoryview]]:
        """What a snapshot consists of, in the order in which it has to be written: the manifest last.

        Args:
            core: whose cut it is.
            cut: open; stays open.
            number: unique within the incarnation.
            base: manifest that the cut adds to; empty: it is a full one.
            copy: for a move; None: a snapshot of the ps itself.
            ahead: how many objects are asked for before one is done with.

        Yields:
            URI and bytes, which are valid until ``ahead`` + 1 others were asked for.
        """
        shard = core.shard
        if shard is None:
            raise ValueError("a cut without a shard")
        folder = self._folder(copy.recipient if copy else self._ps, number)
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
                accumulated=group.accumulated.batches,
            )
            for group in groups
        ]
        manifest = self._manifest(core, shard.signature, number, base, states, chunks)
        yield folder + (COPY_NAME if copy else MANIFEST_NAME), encode_manifest(manifest)

    def reference(
        self, core: PsCore, base: Snapshot | None, copies: Sequence[Snapshot], *, number: int, move: int
    ) -> tuple[str, bytes]:
        """URI and bytes of a manifest of the last snapshot and, beside it, what is held; see ``referred``."""
        groups, chunks = referred(base, copies, move)
        signature = ModelSignature.from_json(copies[-1][1].signature)
        manifest = self._manifest(core, signature, number, base[0] if base else "", groups, chunks)
        return self._folder(self._ps, number) + MANIFEST_NAME, encode_manifest(manifest)

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
            ps=self._ps,
            incarnation=self._incarnation,
            number=number,
            base=base,
            plan=core.plan.fingerprint,
            spec=self._encoded_spec,
            signature=signature.to_json(),
            placement_version=core.placement.version,
            groups=tuple(groups),
            chunks=tuple(chunks),
        )

    def garbage(self, kept: Collection[Snapshot]) -> list[str]:
        """What other lives left behind: half-written snapshots, and complete ones that nobody needs.

        Args:
            kept: the snapshots that stay.

        Raises:
            TransientError, PermanentError: the store.
        """
        folders = tuple({folder for snapshot in kept for folder in folders_of(*snapshot)})
        found = self._store.list(snapshots_folder(self._spec.storage, self._spec.job, self._ps))
        return [info.uri for info in found if not info.uri.startswith(folders)]

    def delete(self, garbage: Iterable[str]) -> None:
        """Remove objects that nothing refers to.

        Raises:
            TransientError, PermanentError: the store; what is left is garbage.
        """
        for uri in garbage:
            self._store.delete(uri)
        self.remove_empty_folders()

    def remove_empty_folders(self) -> None:
        """What snapshots of this ps leave in a local storage when they are deleted, or were never written."""
        remove_empty_folders(snapshots_folder(self._spec.storage, self._spec.job, self._ps))


def delete_snapshot(store: ObjectStore, uri: str, manifest: Manifest) -> None:
    """Remove a snapshot that nothing builds on any more, its manifest first, and the copies that it refers to.

    Other snapshots that refer to them are of the same chain, so they are removed as well.

    Raises:
        TransientError, PermanentError: the store; what is left is garbage.
    """
    store.delete(uri)
    for chunk in manifest.chunks:
        store.delete(chunk_uri(chunk.of or uri, chunk.name))
    for copy in {chunk.of for chunk in manifest.chunks if chunk.of}:
        store.delete(copy)


def _copied(shard: ModelShard, cut: ShardCut, partitions: Ranges) -> Sequence[GroupCut]:
    """What the served groups of a cut have of some partitions."""
    wanted = [(group, common(group.partitions, partitions)) for group in cut.served]
    return [reduced(group, inner, shard.signature.dense) for group, inner in wanted if inner]


def _encoded(
    shard: ModelShard, cut: ShardCut, groups: Sequence[GroupCut], partitions: npt.NDArray[np.bool_] | None, buffers: int
) -> Iterator[tuple[bytes | memoryview, Chunk]]:
    """The chunks of a cut, their sizes and checksums still to be filled in."""

    def chunk(name: str, part: ChunkPart, table: int = 0, rows: int = 0, group: int = 0) -> Chunk:
        return Chunk(name=name, part=part, table=table, rows=rows, group=group, size_bytes=0, checksum=b"")

    for number, group in enumerate(groups):
        yield _bytes(group.dense.state, group.dense.fixed), chunk(f"dense-{number}", ChunkPart.DENSE, group=number)
    for table, (store, rows_cut) in enumerate(zip(shard.tables, cut.rows, strict=True)):
        rows_max = max(1, CHUNK_BYTES // (8 + 4 * store.slab_width))
        for number, (rows, data) in enumerate(rows_cut.packed(rows_max, partitions, buffers=buffers)):
            yield data.data, chunk(f"rows-{table}-{number:05d}", ChunkPart.ROWS, table, rows)
    numbers = {store.table.name: number for number, store in enumerate(shard.tables)}
    for number, group in enumerate(groups):
        sums = group.accumulated.sums
        if not group.accumulated.batches:
            continue
        yield sums.dense.tobytes(), chunk(f"accumulated-{number}", ChunkPart.ACCUMULATED_DENSE, group=number)
        for name, (ids, added) in sums.rows.items():
            table, what = numbers[name], ChunkPart.ACCUMULATED_ROWS
            yield _bytes(ids, added), chunk(f"accumulated-{number}-{table}", what, table, ids.size, number)


def _bytes(*arrays: npt.NDArray[np.generic]) -> bytes:
    """Arrays one after another, copied once: a copy holds Python's lock, and pushes wait for it."""
    return b"".join([array.reshape(-1).view(np.uint8).data for array in arrays])
