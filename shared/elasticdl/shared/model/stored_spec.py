"""The specification of a job beside its snapshots: one object for all manifests, named by the digest of its content.

A job can be resumed without its event log, so its snapshots have to say what the job is. With a list of a million files
that takes megabytes, and it never changes.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.codec import decode_spec, encode_spec
from elasticdl.shared.messages.compression import decompressed_object
from elasticdl.shared.model.manifests import READS, DamagedError, Manifest, folder_of, snapshots_folder
from elasticdl.shared.storage import ObjectNotFoundError, ObjectStore

_NAME = "job-"
_MAGIC = b"EDLJ"
_COMPRESSION = 1


class StoredSpec:
    """A job's specification, as the object that manifests refer to."""

    def __init__(self, spec: JobSpec) -> None:
        encoded = encode_spec(spec)
        self.digest = _digest(encoded)
        self.uri = snapshots_folder(spec.storage, spec.job) + _NAME + self.digest
        self._data = _MAGIC + zlib.compress(encoded, _COMPRESSION)

    def write_if_missing(self, store: ObjectStore) -> None:
        """Write the object unless it is there. Any number of processes may do so: its content follows from its name."""
        try:
            if store.info(self.uri).size_bytes == len(self._data):
                return
        except ObjectNotFoundError:
            pass  # This is the job's first snapshot, or the object was deleted.
        store.write(self.uri, self._data)


def read_spec_of(store: ObjectStore, uri: str, manifest: Manifest) -> JobSpec:
    """The job that a snapshot is of. Raises ``DamagedError`` if the object with it is missing or damaged."""
    folder = folder_of(folder_of(folder_of(uri).rstrip("/")).rstrip("/"))
    place = folder + _NAME + manifest.spec_digest
    try:
        for _ in range(READS):
            encoded = _unpacked(store.read(place))
            if _digest(encoded) == manifest.spec_digest:
                return _decoded(encoded, place, uri)
    except ObjectNotFoundError as error:
        raise DamagedError(place, "is missing", snapshot=uri) from error
    raise DamagedError(place, "is damaged: its digest differs", snapshot=uri)


def _decoded(encoded: bytes, place: str, snapshot: str) -> JobSpec:
    try:
        return decode_spec(encoded)
    except ProtocolError as error:
        raise DamagedError(place, "holds a job that this version can't read", snapshot=snapshot) from error


def _unpacked(data: bytes) -> bytes:
    try:
        return decompressed_object(data.removeprefix(_MAGIC))
    except zlib.error:
        return b""


def _digest(encoded: bytes) -> str:
    return blake2b(encoded, digest_size=16).hexdigest()
