"""Snapshots on object storage: written chunk by chunk from a cut, the manifest last, and read back.

    STORAGE/JOB/snapshots/PS/INCARNATION-NUMBER/{dense,rows-TABLE-CHUNK,...,manifest}

A snapshot is full, or adds the rows that changed since its base; a chain of bases ends in a full one. A key is never
written twice: it contains the incarnation and a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elasticdl.ps.core import PsCore
from elasticdl.ps.engine.accumulator import AccumulatorState, Gradients
from elasticdl.ps.engine.dense import DenseCut
from elasticdl.ps.group import Group, GroupCut
from elasticdl.shared.codec import encode_spec
from elasticdl.shared.errors import UserError
from elasticdl.shared.events import GroupLedger
from elasticdl.shared.job import JobSpec
from elasticdl.shared.ledger import Ledger
from elasticdl.shared.manifests import (
    MANIFEST_NAME,
    Chunk,
    ChunkPart,
    DamagedError,
    Manifest,
    checksum_of,
    chunk_uri,
    decode_manifest,
    encode_manifest,
    read_chunk,
    read_manifest,
    snapshots_folder,
)
from elasticdl.shared.model import ModelSignature
from elasticdl.shared.names import GroupId, Incarnation, PodName
from elasticdl.shared.storage import ObjectStore

CHUNK_BYTES = 8 << 20
"""Size of a chunk of rows, about: what is copied under a table's lock, and held in memory twice while it is written."""

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

    def write(self, core: PsCore, cut: GroupCut, *, number: int, base: str) -> Written:
        """Write a cut; pushes go on meanwhile. Arguments as ``objects``.

        Raises:
            TransientError, PermanentError: the store; what was written so far is garbage that nothing refers to.
        """
        size_bytes, uri, data = 0, "", b""
        for uri, data in self.objects(core, cut, number=number, base=base):
            self._store.write(uri, data)
            size_bytes += len(data)
        return Written(uri=uri, manifest=decode_manifest(data, uri), size_bytes=size_bytes)

    def objects(self, core: PsCore, cut: GroupCut, *, number: int, base: str) -> Iterator[tuple[str, bytes]]:
        """What a snapshot consists of, in the order in which it has to be written: the manifest last.

        Args:
            core: whose cut it is.
            cut: open; stays open.
            number: unique within the incarnation.
            base: manifest that the cut adds to; empty: it is a full one.

        Yields:
            URI and bytes.
        """
        group = core.group
        if group is None:
            raise ValueError("a cut without a group")
        folder = snapshots_folder(self._spec.storage, self._spec.job, self._ps, f"{self._incarnation}-{number:06d}")
        chunks: list[Chunk] = []
        for name, part, table, rows, data in _encoded(group, cut):
            yield folder + name, data
            chunks.append(
                Chunk(name=name, part=part, table=table, rows=rows, size_bytes=len(data), checksum=checksum_of(data))
            )
        manifest = Manifest(
            job=self._spec.job,
            ps=self._ps,
            incarnation=self._incarnation,
            number=number,
            base=base,
            plan=core.plan.fingerprint,
            spec=self._encoded_spec,
            signature=group.signature.to_json(),
            table_version=core.placement.version,
            parts=core.placement.ps,
            part=core.part,
            ledger=GroupLedger(group=GroupId(self._ps), ledger=cut.ledger),
            iteration=cut.iteration,
            rate=cut.rate,
            accumulated=cut.accumulated.batches,
            chunks=tuple(chunks),
        )
        yield folder + MANIFEST_NAME, encode_manifest(manifest)

    def garbage(self, kept: Collection[str]) -> list[str]:
        """What other lives left behind: half-written snapshots, and complete ones that nobody needs.

        Args:
            kept: manifests of the snapshots that stay.

        Raises:
            TransientError, PermanentError: the store.
        """
        folders = tuple(uri.removesuffix(MANIFEST_NAME) for uri in kept)
        found = self._store.list(snapshots_folder(self._spec.storage, self._spec.job, self._ps))
        return [info.uri for info in found if not info.uri.startswith(folders)]

    def delete(self, garbage: Iterable[str]) -> None:
        """Remove objects that nothing refers to.

        Raises:
            TransientError, PermanentError: the store; what is left is garbage.
        """
        for uri in garbage:
            self._store.delete(uri)


def read_chain(store: ObjectStore, uri: str) -> list[tuple[str, Manifest]]:
    """A snapshot and everything that it builds on, the full one first.

    Raises:
        TransientError: the store is away.
        DamagedError: a manifest is missing or damaged.
    """
    chain: list[tuple[str, Manifest]] = []
    while uri:
        if any(uri == seen for seen, _ in chain):
            raise DamagedError(uri, "builds on itself")
        manifest = read_manifest(store, uri)
        chain.append((uri, manifest))
        uri = manifest.base
    return chain[::-1]


def restore(store: ObjectStore, core: PsCore, chain: list[tuple[str, Manifest]]) -> Group:
    """A group as it was at the last manifest of a chain; every object's checksum is verified.

    Raises:
        TransientError: the store is away.
        DamagedError: an object is missing or damaged; it is named.
        UserError: the snapshot belongs to another plan or another number of ps.
    """
    uri, last = chain[-1]
    if last.plan != core.plan.fingerprint:
        raise UserError(
            f"the snapshot {uri} is of plan {last.plan}, this job's plan is {core.plan.fingerprint}",
            hint="Data, batch size, epochs, shuffle or seed were changed; start a new job.",
        )
    if (last.parts, last.part) != (core.placement.ps, core.part):
        raise UserError(
            f"the snapshot {uri} is part {last.part} of {last.parts}, wanted is {core.part} of {core.placement.ps}",
            hint=f"Resume the job with --num_ps_pods={last.parts}.",
        )
    group = core.make_group(ModelSignature.from_json(last.signature))
    for one_uri, manifest in chain:
        for chunk in manifest.chunks:
            if chunk.part is ChunkPart.ROWS:
                ids, slabs = _rows(read_chunk(store, one_uri, chunk), chunk, group.tables[chunk.table].slab_width)
                group.tables[chunk.table].load(ids, slabs)
    _load_dense(store, group, uri, last)
    _load_accumulator(store, group, uri, last)
    group.restore(Ledger(last.ledger.ledger), iteration=last.iteration, rate=last.rate)
    return group


def delete_snapshot(store: ObjectStore, uri: str, manifest: Manifest) -> None:
    """Remove a snapshot that nothing builds on any more, its manifest first.

    Raises:
        TransientError, PermanentError: the store; what is left is garbage.
    """
    store.delete(uri)
    for chunk in manifest.chunks:
        store.delete(chunk_uri(uri, chunk.name))


_Encoded = tuple[str, ChunkPart, int, int, bytes]
"""Name, part, table, rows, bytes."""


def _encoded(group: Group, cut: GroupCut) -> Iterator[_Encoded]:
    yield "dense", ChunkPart.DENSE, 0, 0, _bytes(cut.dense.state, cut.dense.fixed)
    for table, (store, rows_cut) in enumerate(zip(group.tables, cut.rows, strict=True)):
        rows_max = max(1, CHUNK_BYTES // (8 + 4 * store.slab_width))
        for number, (ids, slabs) in enumerate(rows_cut.chunks(rows_max)):
            name = f"rows-{table}-{number:05d}"
            yield name, ChunkPart.ROWS, table, ids.size, _bytes(ids, slabs)
    if cut.accumulated.batches:
        sums = cut.accumulated.sums
        yield "accumulated-dense", ChunkPart.ACCUMULATED_DENSE, 0, 0, sums.dense.tobytes()
        numbers = _numbers(group)
        for name, (ids, rows) in sums.rows.items():
            table = numbers[name]
            data = _bytes(ids, rows)
            yield f"accumulated-{table}", ChunkPart.ACCUMULATED_ROWS, table, ids.size, data


def _bytes(*arrays: npt.NDArray[np.generic]) -> bytes:
    """Arrays one after another, copied once: a copy holds Python's lock, and pushes wait for it."""
    return b"".join([array.reshape(-1).view(np.uint8).data for array in arrays])


def _numbers(group: Group) -> Mapping[str, int]:
    return {store.table.name: number for number, store in enumerate(group.tables)}


def _rows(data: bytearray, chunk: Chunk, width: int) -> tuple[_Ids, _Floats]:
    ids = np.frombuffer(data, np.int64, chunk.rows)
    return ids, np.frombuffer(data, np.float32, offset=ids.nbytes).reshape(chunk.rows, width)


def _load_dense(store: ObjectStore, group: Group, uri: str, manifest: Manifest) -> None:
    (chunk,) = (chunk for chunk in manifest.chunks if chunk.part is ChunkPart.DENSE)
    values = np.frombuffer(read_chunk(store, uri, chunk), np.float32)
    shape = group.dense.cut().state.shape
    moved = shape[0] * shape[1]
    group.dense.load(DenseCut(state=values[:moved].reshape(shape), fixed=values[moved:]))


def _load_accumulator(store: ObjectStore, group: Group, uri: str, manifest: Manifest) -> None:
    if not manifest.accumulated:
        return
    dense = np.zeros(group.dense.trainable, np.float32)
    rows: dict[str, tuple[_Ids, _Floats]] = {}
    for chunk in manifest.chunks:
        if chunk.part is ChunkPart.ACCUMULATED_DENSE:
            dense = np.frombuffer(read_chunk(store, uri, chunk), np.float32)
        elif chunk.part is ChunkPart.ACCUMULATED_ROWS:
            table = group.tables[chunk.table].table
            rows[table.name] = _rows(read_chunk(store, uri, chunk), chunk, table.width)
    group.accumulator.load(AccumulatorState(batches=manifest.accumulated, sums=Gradients(dense=dense, rows=rows)))
