"""The encoding of core snapshots: the folded state as bytes, with its position in the log and its schema.

A snapshot only saves time. If it is damaged, of another schema or of another log, the log is folded from an earlier one
on, or from its beginning. The encoding follows from the fields of the dataclasses, and so does the schema, which also
covers the core's source.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from elasticdl.master import core
from elasticdl.master.core import State
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.compression import decompressed_object
from elasticdl.shared.messages.json_codec import JsonCodec
from elasticdl.shared.names import MASTER

STRETCH_RECORDS = 20_000
"""Of each stretch of this many records one snapshot is kept, for readers of what is before the latest one."""
BYTES_PER_RECORD = 4
"""Kept snapshots are fewer if they are large, so that they take no more than this for a record of the log."""
_MAGIC = b"EDLC"
_SCHEMA_BYTES = _CHECKSUM_BYTES = 16
_SEQ_BYTES = 8
_COMPRESSION = 1
"""The fastest level: snapshots have kilobytes."""


def encode(state: State) -> bytes:
    """A state as bytes: magic, schema, sequence number, checksum, compressed JSON."""
    return pack(copy(state))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCopy:
    """A copy of a state, to be packed while the state changes; ``fields``: its fields as JSON values."""

    seq: int
    fields: Any


def copy(state: State) -> StateCopy:
    """Copy a state, which takes a part of the time that ``encode`` takes."""
    return StateCopy(seq=state.seq, fields=_plain().dump(state))


def pack(copied: StateCopy) -> bytes:
    """A copied state as bytes, see ``encode``; any thread may call."""
    body = zlib.compress(json.dumps(copied.fields, separators=(",", ":")).encode(), _COMPRESSION)
    head = schema() + copied.seq.to_bytes(_SEQ_BYTES, "big")
    return _MAGIC + head + _checksum(head + body) + body


def decode(data: bytes, submitted: JobSpec) -> State:
    """Inverse of ``encode``.

    Args:
        submitted: the job as it was submitted. A snapshot does not repeat its sources, of which there may be a million.

    Raises:
        ProtocolError: the snapshot is damaged, or of another schema.
    """
    head_end = len(_MAGIC) + _SCHEMA_BYTES + _SEQ_BYTES
    head, body = data[len(_MAGIC) : head_end], data[head_end + _CHECKSUM_BYTES :]
    if not data.startswith(_MAGIC) or data[head_end : head_end + _CHECKSUM_BYTES] != _checksum(head + body):
        raise ProtocolError("the checksum differs, so it is damaged")
    if head[:_SCHEMA_BYTES] != schema():
        raise ProtocolError("it was written by another version of this program")
    try:
        state: State = _plain().load(json.loads(decompressed_object(body)))
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ProtocolError(f"its content is no state: {error!r}") from error
    if state.spec:
        state.spec = _with_sources(state.spec, submitted)
    if state.training and state.spec:
        # One object, as when folded: a plan caches what it computes.
        state.training.plan = state.spec.plan
    return state


def _with_sources(spec: JobSpec, submitted: JobSpec) -> JobSpec:
    """The spec with the sources of the submitted one: a resume can change all else."""
    validation = (
        spec.validation and submitted.validation and replace(spec.validation, sources=submitted.validation.sources)
    )
    return replace(spec, plan=replace(spec.plan, sources=submitted.plan.sources), validation=validation)


def seq_of(data: bytes) -> int:
    """Sequence number of the last input in a snapshot of any schema; 0 if it is not a snapshot."""
    start = len(_MAGIC) + _SCHEMA_BYTES
    return int.from_bytes(data[start : start + _SEQ_BYTES], "big") if data.startswith(_MAGIC) else 0


def stretch_of(seq: int) -> int:
    """Number of the stretch of the log that a record is in, from 0."""
    return seq // STRETCH_RECORDS


def is_kept(stretch: int, size_bytes: int) -> bool:
    """Whether a snapshot of this size is kept in a stretch: of large ones only in every second, every fourth, ..."""
    return size_bytes <= (stretch & -stretch) * STRETCH_RECORDS * BYTES_PER_RECORD


def kept_name(stretch: int) -> str:
    """The register of the snapshot that is kept in a stretch."""
    return f"{MASTER}-{stretch}"


def kept_names(until: int) -> Iterator[str]:
    """The registers of all snapshots that are kept of a log until a record, the last one first."""
    return map(kept_name, range(stretch_of(until), 0, -1))


def is_current(data: bytes) -> bool:
    """Whether a snapshot was written by this version of the program."""
    return data.startswith(_MAGIC + schema())


@cache
def schema() -> bytes:
    """Digest of the state's classes and fields and of the core's source; a usable snapshot has the same."""
    digest = hashlib.sha256(_plain().structure.encode())
    for source in sorted(Path(core.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.digest()[:_SCHEMA_BYTES]


@cache
def _plain() -> JsonCodec:
    return JsonCodec(State, left_out=(Sequence[Source],))


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()
