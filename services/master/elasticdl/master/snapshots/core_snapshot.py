"""Core snapshots: the folded state as bytes, with the place in the log up to which it was folded and its schema.

A snapshot is only a short cut. One that is damaged, of another schema or of another log is no snapshot, and the log is
folded from its beginning. Nothing is written by hand here: the bytes follow from the fields of the dataclasses, and so
does the schema, which also covers the code that folds.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from functools import cache
from pathlib import Path

from elasticdl.master import core
from elasticdl.master.core import State
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.messages.json_codec import JsonCodec

_MAGIC = b"EDLC"
_SCHEMA_BYTES = _CHECKSUM_BYTES = 16
_SEQ_BYTES = 8
_COMPRESSION = 1
"""The fastest: these are kilobytes."""


def encode(state: State) -> bytes:
    """A state as bytes: magic, schema, sequence number, checksum, compressed JSON."""
    body = zlib.compress(json.dumps(_plain().dump(state), separators=(",", ":")).encode(), _COMPRESSION)
    head = schema() + state.seq.to_bytes(_SEQ_BYTES, "big")
    return _MAGIC + head + _checksum(head + body) + body


def decode(data: bytes) -> State:
    """Inverse of ``encode``.

    Raises:
        ProtocolError: it is damaged, or of another schema than this program's.
    """
    head_end = len(_MAGIC) + _SCHEMA_BYTES + _SEQ_BYTES
    head, body = data[len(_MAGIC) : head_end], data[head_end + _CHECKSUM_BYTES :]
    if not data.startswith(_MAGIC) or data[head_end : head_end + _CHECKSUM_BYTES] != _checksum(head + body):
        raise ProtocolError("it is damaged: its checksum differs")
    if head[:_SCHEMA_BYTES] != schema():
        raise ProtocolError("it was written by another version of this program")
    state: State = _plain().load(json.loads(zlib.decompress(body)))
    if state.training and state.spec:
        state.training.plan = state.spec.plan  # One object, as when folded: what a plan computes, it computes once.
    return state


def seq_of(data: bytes) -> int:
    """Sequence number of the last input in a snapshot, whatever its schema; 0 for what is none."""
    start = len(_MAGIC) + _SCHEMA_BYTES
    return int.from_bytes(data[start : start + _SEQ_BYTES], "big") if data.startswith(_MAGIC) else 0


@cache
def schema() -> bytes:
    """What has to be equal for a snapshot to be of use: the state's classes and fields, and how records are folded."""
    digest = hashlib.sha256(_plain().structure.encode())
    for source in sorted(Path(core.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.digest()[:_SCHEMA_BYTES]


@cache
def _plain() -> JsonCodec:
    return JsonCodec(State)


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()
