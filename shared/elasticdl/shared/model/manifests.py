"""Manifests: what a snapshot consists of. Written last, so a snapshot with a manifest is complete.

The master reads them too (the audit believes the ledgers in final manifests and nothing else), so no numpy here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import xxhash

from elasticdl.shared.errors import PermanentError, ProtocolError, TransientError, UserError, check_format
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.messages.events import GroupLedger, SnapshotDamaged
from elasticdl.shared.model.placement import PARTITIONS, Ranges, group_id
from elasticdl.shared.names import Incarnation, JobId, PodName
from elasticdl.shared.proto.schema import Schema
from elasticdl.shared.storage import ObjectNotFoundError, ObjectStore, join

FORMAT = 1
MANIFEST_NAME = "manifest"
COPY_NAME = "copy"
"""Manifest name of a copy for a move. It is not a snapshot."""
CHUNK_BYTES = 8 << 20
"""Approximate size of a chunk of rows. A chunk is copied under its table's lock and is in memory twice at a time."""
NOTHING_LEFT = "The job can't be resumed from anything"
"""Message of a ps without any usable snapshot; the client recognises it by this text, and advises what to do."""
PROBLEM_CHARS_MAX = 160
"""Length of an error in the description of a damage, which is in an event on the log."""
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_MANIFEST = re.compile(rf"{_NAME}/({MANIFEST_NAME}|{COPY_NAME})")
"""URI of a manifest, in the folder of its ps."""
_OBJECT = re.compile(_NAME)
"""Name of an object beside its manifest."""
_MAGIC = b"EDLM"
_CHECKSUM_BYTES = 16
_DIGEST = re.compile(r"[0-9a-f]{32}")
READS = 2
"""Read attempts before an object counts as damaged: a transfer error does not repeat."""


class DamagedError(PermanentError):
    """An object of a snapshot is missing or is not what was written.

    Attributes:
        snapshot: the manifest of the snapshot that it is a part of; often the same.
    """

    def __init__(self, uri: str, problem: str, *, snapshot: str = "") -> None:
        snapshot = snapshot or uri
        what = f"the snapshot's manifest {uri}" if snapshot == uri else f"{uri}, a part of the snapshot {snapshot},"
        super().__init__(f"{what} {problem}")
        self.uri = uri
        self.snapshot = snapshot
        self.problem = problem


class ChunkPart(Enum):
    """What a chunk holds.

    Attributes:
        ROWS: ids int64[rows], slabs float32[rows, slab width]. The last place of a slab whose table has
            ``expire_after`` is an int32: the updates made when the row was touched. A candidate's slab is an int32, the
            updates that have had a gradient for its id, and that place.
        DENSE: float32: weights, then each slot, of the trainable elements; then the fixed ones.
        ACCUMULATED_DENSE: float64: sum of the gradients that wait for their update, and of the layer state that is
            averaged with them, then of the magnitudes.
        ACCUMULATED_ROWS: ids int64[rows], sums float64[rows, width], or [rows, 2 * width] with the magnitudes of each
            row behind its gradient, see ``Optimizer.power``.
        TALLIES: int64[tables that are tracked, 2, 256]: admitted rows and dropped gradients by partition.
        METRICS: float64[rows, 4 + states]: epoch, batches, records, number of states and the summed metric states of
            each epoch, then zeros.
    """

    ROWS = "rows"
    DENSE = "dense"
    ACCUMULATED_DENSE = "accumulated dense"
    ACCUMULATED_ROWS = "accumulated rows"
    TALLIES = "tallies"
    METRICS = "metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One object of a snapshot.

    Attributes:
        of: URI of another manifest, whose object it is and beside which it lies; empty: it is this one's.
        table: rows: position of the table in the signature; beyond its end: the candidates of a table.
        rows: rows: how many; metrics: of how many epochs.
        group: position of the group whose it is; rows belong to the group that has their partition.
        checksum: xxh3-128 of its bytes.
    """

    name: str
    part: ChunkPart
    table: int = 0
    rows: int = 0
    group: int = 0
    size_bytes: int
    checksum: bytes
    of: str = ""


@dataclass(frozen=True, slots=True)
class RateRun:
    """The learning rate of the updates from ``start`` to the next run."""

    start: int
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """One group of a snapshot.

    Attributes:
        move: not 0: it is held for this move and not served.
        rate: the last learning rate that a worker sent.
        accumulated: batches whose gradients wait for their update.
        rates: the learning rates of the updates; empty: rows don't need them.
        rate_tolerance: relative difference up to which rates are one run, as in ``RateHistory``.
    """

    partitions: Ranges
    move: int = 0
    ledger: LedgerRecord
    iteration: int
    rate: float
    accumulated: int
    rates: tuple[RateRun, ...] = ()
    rate_tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One snapshot of a ps: all its groups, cut at one moment.

    Attributes:
        format: ``FORMAT`` of the version that wrote it.
        number: 0, 1, 2... within that incarnation.
        base: URI of the manifest that this one adds changed rows to; empty: it is a full snapshot.
        spec_digest: names the object with the job's specification, see ``stored_spec``; empty: the manifest is of
            no job.
        signature: the model, canonical JSON.
        chunks: the objects, in the order in which they are to be loaded.
    """

    format: int = FORMAT
    job: JobId
    ps: PodName
    incarnation: Incarnation
    number: int
    base: str = ""
    plan: str
    spec_digest: str = ""
    signature: str
    placement_version: int
    groups: tuple[GroupState, ...]
    chunks: tuple[Chunk, ...]

    @property
    def ledgers(self) -> tuple[GroupLedger, ...]:
        """The ledger of each group that was served."""
        return tuple(
            GroupLedger(group=group_id(group.partitions), partitions=group.partitions, ledger=group.ledger)
            for group in self.groups
            if not group.move
        )

    @property
    def step(self) -> int:
        """The most batches that a group had absorbed."""
        return max((group.ledger.step for group in self.groups), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFormat:
    """What of a manifest every version can read: protobuf leaves out the other fields."""

    format: int = FORMAT


def damage(ps: PodName, error: DamagedError, instead: str) -> SnapshotDamaged:
    """The event that tells of a damaged snapshot."""
    return SnapshotDamaged(ps=ps, snapshot=error.snapshot, object=error.uri, problem=error.problem, instead=instead)


def checksum_of(data: bytes | bytearray | memoryview) -> bytes:
    """xxh3-128: against damage, not against malice; as fast as memory."""
    return xxhash.xxh3_128_digest(data)


def snapshots_folder(storage: str, job: JobId, *names: str) -> str:
    """Where a job's snapshots are; ``names``: the ps, and the snapshot."""
    return join(storage, job, "snapshots", *names, "")


def manifest_uris(store: ObjectStore, folder: str, *names: str) -> list[str]:
    """URIs of everything below a folder that is called ``MANIFEST_NAME``, ``COPY_NAME`` or what else is wanted."""
    ends = tuple(f"/{name}" for name in names)
    return [info.uri for info in store.list(folder) if info.uri.endswith(ends)]


def chunk_uri(manifest: str, name: str) -> str:
    """URI of a chunk of the snapshot with that manifest."""
    return folder_of(manifest) + name


def folder_of(manifest: str) -> str:
    """URI of the folder that a manifest is in, with its slash."""
    return manifest.rpartition("/")[0] + "/"


def read_manifest(store: ObjectStore, uri: str) -> Manifest:
    """Read and verify a manifest. Raises ``DamagedError`` or, if a newer version wrote it, ``FormatError``."""
    try:
        for _ in range(READS - 1):
            with contextlib.suppress(DamagedError):
                return _checked(decode_manifest(store.read(uri), uri), uri)
        return _checked(decode_manifest(store.read(uri), uri), uri)
    except ObjectNotFoundError as error:
        raise DamagedError(uri, "is missing") from error


def read_chunk(store: ObjectStore, manifest: str, chunk: Chunk) -> bytearray:
    """A chunk's bytes, verified. Raises ``DamagedError``: it is missing or damaged."""
    uri = chunk_uri(chunk.of or manifest, chunk.name)
    try:
        for _ in range(READS):
            data = bytearray(store.read(uri))
            if len(data) == chunk.size_bytes and checksum_of(data) == chunk.checksum:
                return data
    except ObjectNotFoundError as error:
        raise DamagedError(uri, "is missing", snapshot=manifest) from error
    raise DamagedError(uri, "is damaged: its checksum differs", snapshot=manifest)


@contextlib.contextmanager
def rebuilding(uri: str) -> Iterator[None]:
    """While a model is rebuilt from a snapshot: an error means that it is damaged, whatever its checksums say."""
    try:
        yield
    except (TransientError, PermanentError, UserError, MemoryError):
        raise  # The store, another plan, this machine.
    except Exception as error:
        found = f"{type(error).__name__}: {error}"[:PROBLEM_CHARS_MAX]
        raise DamagedError(uri, f"has the right checksum and can't be restored ({found})") from error


def _checked(manifest: Manifest, uri: str) -> Manifest:
    """Refuse a manifest that lies under another name than it was written to, or names other objects than its own.

    A ps reads and deletes what its manifests name.
    """
    folder, name = folder_of(folder_of(uri).rstrip("/")), f"{manifest.incarnation}-{manifest.number:06d}"
    if not folder_of(folder.rstrip("/")).endswith(f"/{manifest.job}/snapshots/"):
        raise DamagedError(uri, f"is of the job {manifest.job!r}")
    is_own = uri.endswith(f"/{COPY_NAME}") or folder.endswith(f"/{manifest.ps}/")
    if not is_own or folder_of(uri) != f"{folder}{name}/":
        raise DamagedError(uri, f"is another snapshot, {name} of {manifest.ps}")
    for group in manifest.groups:
        if not _ascend(group.partitions) or any(end > PARTITIONS for _, end in group.partitions):
            raise DamagedError(uri, f"has the partitions {group.partitions}")
        if not _ascend(group.ledger.finished):
            raise DamagedError(uri, "has a ledger whose tasks are not in order")
    for other in {manifest.base, *(chunk.of for chunk in manifest.chunks)} - {""}:
        if not other.startswith(folder) or not _MANIFEST.fullmatch(other.removeprefix(folder)):
            raise DamagedError(uri, f"refers to {other!r}, which is outside of {folder}")
    if manifest.spec_digest and not _DIGEST.fullmatch(manifest.spec_digest):
        raise DamagedError(uri, f"names the job {manifest.spec_digest!r}, which is no digest")
    for chunk in manifest.chunks:
        if not _OBJECT.fullmatch(chunk.name):
            raise DamagedError(uri, f"names {chunk.name!r}, which is outside of its folder")
    return manifest


def _ascend(ranges: Ranges) -> bool:
    """Whether ranges are not empty, and each lies behind the one before."""
    bounds = [0, *(bound for bounds in ranges for bound in bounds)]
    starts_and_ends = zip(bounds[1::2], bounds[2::2], strict=True)
    return all(start < end for start, end in starts_and_ends) and bounds == sorted(bounds)


SCHEMA = Schema("elasticdl/shared/proto/manifest.proto", "elasticdl.v1.stored", (Manifest, ManifestFormat))
_MANIFEST_CODEC, _FORMAT_CODEC = SCHEMA.codec(Manifest), SCHEMA.codec(ManifestFormat)


def encode_manifest(manifest: Manifest) -> bytes:
    """Magic, checksum, protobuf."""
    body = _MANIFEST_CODEC.encode(manifest)
    return _MAGIC + checksum_of(body) + body


def decode_manifest(data: bytes, uri: str) -> Manifest:
    """Inverse of ``encode_manifest``; ``uri`` is for the text of the errors, see ``read_manifest``."""
    checksum, body = data[len(_MAGIC) : len(_MAGIC) + _CHECKSUM_BYTES], data[len(_MAGIC) + _CHECKSUM_BYTES :]
    if not data.startswith(_MAGIC) or checksum != checksum_of(body):
        raise DamagedError(uri, "is damaged: its checksum differs")
    try:
        check_format(f"the snapshot's manifest {uri}", _FORMAT_CODEC.decode(body).format, FORMAT)
        return _MANIFEST_CODEC.decode(body)
    except ProtocolError as error:
        raise DamagedError(uri, "can't be read") from error
