"""How an event is stored: its subject and message id are not repeated, and the data of a large one lies beside the log.

No stored event takes more than ``EVENT_BYTES_MAX``. If its data is larger, it is compressed and written to the payloads
first, under the digest of its content, and the event on the log refers to it. Readers get the event whole again, so the
cores know nothing about it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from elasticdl.shared.bus.ports import KeyValue
from elasticdl.shared.errors import FencedError, ProtocolError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.compression import decompressed
from elasticdl.shared.messages.events import Envelope, LogRecord, MessageUnreadable
from elasticdl.shared.names import MASTER, NOBODY, Incarnation, PodName, Service
from elasticdl.shared.process.operating_system import return_freed_memory

EVENT_BYTES_MAX = 512
"""The largest event on the log, with subject and headers."""
DATA_BYTES_MAX = 256
"""The largest data of an event; the rest is for subject, headers and the broker's own bytes."""
PART_BYTES_MAX = 512 << 10
"""The largest part of a payload: brokers limit messages, usually to 1 MiB."""
PARTS_MAX = 512
"""Most parts of a payload. The data of a job with a million files takes some 40."""
PAYLOAD_BYTES_MAX = 1 << 30
"""The largest data of an event before it is compressed."""
REASON_CHARS_MAX = 120
"""Of what is said about a message that can't be read."""
LARGE_PARTS = 4
"""After a payload of this many parts was decoded, the memory that it took is returned to the system."""
_COMPRESSION = 1
_NO_NAME = PodName("")
_MASTER, _MASTER_BYTES = MASTER.encode(), codec.MASTER_BYTES
_SERVICES: Mapping[str, Service] = {service.value: service for service in Service}
_PAYLOAD = re.compile(r"([0-9a-f]{32})\.([0-9]{1,6})")
_ID = re.compile(r"([!-~]{1,64})\.([1-9][0-9]{0,18})")


class StoredEvent(NamedTuple):  # A frozen dataclass takes three times as long to make.
    """An event as the broker stores it.

    Attributes:
        sender: pod name of the sender, the last part of the subject.
        data: all else; empty if it lies beside the log.
        payload: digest and number of parts of the payload that holds the data; empty: ``data`` does.
    """

    sender: PodName
    id: str
    data: bytes
    payload: str = ""

    @property
    def parts(self) -> list[str]:
        """Names of the parts of its payload."""
        if not self.payload:
            return []
        name = _PAYLOAD.fullmatch(self.payload)
        if name is None or not 0 < int(name[2]) <= PARTS_MAX:
            raise ProtocolError(f"{self.payload[:60]!r} is not the name of a payload")
        return [f"{name[1]}-{part}" for part in range(int(name[2]))]

    def whole(self, parts: list[bytes]) -> StoredEvent:
        """The same with the data in it, from the parts of its payload.

        Raises:
            ProtocolError: they are damaged, or stand for more than an event may have.
        """
        if not self.payload:
            return self
        try:
            return StoredEvent(self.sender, self.id, decompressed(b"".join(parts), PAYLOAD_BYTES_MAX))
        except zlib.error as error:
            raise ProtocolError(f"its payload can't be read: {error}") from error


def to_stored(envelope: Envelope) -> StoredEvent:
    """What the broker stores, with the data in it whatever its size."""
    rest = replace(envelope, name=_NO_NAME, incarnation=NOBODY, number=0)
    return StoredEvent(envelope.name, envelope.id, codec.encode_envelope(rest))


def from_stored(stored: StoredEvent, decode: Decode = codec.decode_envelope) -> Envelope:
    """Inverse of ``to_stored``; ``decode``: gets the whole envelope, see ``codec.envelope_decoder``.

    Raises:
        ProtocolError: this version can't read the event, or it is under the subject of another service.
    """
    incarnation, number = _named_by(stored.id)
    envelope = decode(codec.with_sender(stored.data, stored.sender, incarnation, number))
    if (stored.sender == MASTER) != (envelope.service is Service.MASTER):
        raise ProtocolError(f"an event of service {envelope.service.value} under the subject of {stored.sender}")
    if not incarnation:
        raise ProtocolError(f"{stored.id[:60]!r} is not the id of an event")
    return envelope


class LastEncoded:
    """How the last envelope was encoded: most are passed on as they are."""

    def __init__(self, decode: Decode) -> None:
        self._last: tuple[Envelope | None, bytes] = None, b""
        self._decode = decode

    def decode(self, data: bytes) -> Envelope:
        """The envelope, to be read."""
        envelope = self._decode(data)
        self._last = envelope, data
        return envelope

    def encode(self, envelope: Envelope) -> bytes:
        """An envelope that was read, or what it was replaced by."""
        last, data = self._last
        return data if envelope is last else codec.encode_envelope(envelope)


def joined(name: bytes, incarnation: bytes, number: bytes, service: bytes, rest: bytes) -> bytes:
    """An encoded envelope, from the end of its subject, its id and its data: the first two bytes, and the others.

    Empty: it may not be the event of this service, so it has to be decoded.
    """
    if not rest or (service == _MASTER_BYTES) is not (name == _MASTER):
        return b""
    return service + _sender(name, incarnation) + codec.encoded_number(int(number)) + rest


@lru_cache(maxsize=4096)
def _sender(name: bytes, incarnation: bytes) -> bytes:
    return codec.encoded_sender(PodName(name.rpartition(b".")[2].decode()), Incarnation(incarnation.decode()))


class _Draft:
    """Becomes a ``LogRecord``: the ``__init__`` of a frozen dataclass takes three times as long."""

    __slots__ = ("envelope", "seq")


def whole_record(seq: int, data: bytes, decode: Decode) -> LogRecord:
    """The record of an encoded envelope; its event is ``MessageUnreadable`` if this version can't read it."""
    record: Any = _Draft()
    record.seq = seq
    try:
        record.envelope = decode(data)
        record.__class__ = LogRecord
        return record  # type: ignore[no-any-return]
    except ProtocolError as error:
        name, incarnation, number = codec.sender_of(data)
        return unreadable(seq, StoredEvent(name, f"{incarnation}.{number}", data), str(error))


def unreadable(seq: int, stored: StoredEvent, reason: str) -> LogRecord:
    """The record that readers get in place of one that can't be read."""
    incarnation, number = _named_by(stored.id)
    event = MessageUnreadable(subject=f"event.{stored.sender}", seq=seq, reason=shortened(reason))
    service = _SERVICES.get(stored.sender.partition("-")[0], Service.CLIENT)
    envelope = Envelope(
        service=service, name=stored.sender, incarnation=incarnation, number=number, time_s=0.0, event=event
    )
    return LogRecord(seq=seq, envelope=envelope)


def shortened(reason: str) -> str:
    """A reason as one line that fits into an event."""
    text = " ".join("".join(each if each.isprintable() else " " for each in reason).split())
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 3] + "..."


def _named_by(message_id: str) -> tuple[Incarnation, int]:
    """The incarnation and the number that a message id consists of; none if it is not of ours."""
    found = _ID.fullmatch(message_id)
    return (Incarnation(found[1]), int(found[2])) if found else (NOBODY, 0)


class Payloads:
    """Writes and reads the data of large events."""

    def __init__(self, parts: KeyValue) -> None:
        self._parts = parts

    async def store(self, envelope: Envelope) -> StoredEvent:
        """What to append for an event, once the broker has acknowledged its payload, if it needs one."""
        stored = to_stored(envelope)
        if len(stored.data) <= DATA_BYTES_MAX:
            return stored
        packed = zlib.compress(stored.data, _COMPRESSION)
        digest = blake2b(packed, digest_size=16).hexdigest()
        parts = [packed[start : start + PART_BYTES_MAX] for start in range(0, len(packed), PART_BYTES_MAX)]
        short = StoredEvent(stored.sender, stored.id, b"", f"{digest}.{len(parts)}")
        for name, part in zip(short.parts, parts, strict=True):
            await self._write(name, part)
        return short

    async def _write(self, name: str, part: bytes) -> None:
        try:
            await self._parts.write(name, part, after=0)
        except FencedError:
            return  # It is there: its name is the digest of its content.

    async def record(self, seq: int, stored: StoredEvent, decode: Decode = codec.decode_envelope) -> LogRecord:
        """The record of an event; its event is ``MessageUnreadable`` if this version can't read it."""
        try:
            envelope = await self.load(stored, decode) if stored.payload else from_stored(stored, decode)
            return LogRecord(seq=seq, envelope=envelope)
        except ProtocolError as error:
            return unreadable(seq, stored, str(error))

    async def load(self, stored: StoredEvent, decode: Decode = codec.decode_envelope) -> Envelope:
        """The event that was stored. Raises ``ProtocolError``: its payload is lost, or this version can't read it."""
        parts: list[bytes] = []
        for name in stored.parts:
            entry = await self._parts.read(name)
            if entry is None:
                raise ProtocolError(f"the broker has lost its payload {name}")
            parts.append(entry.value)
        is_large = len(parts) >= LARGE_PARTS
        stored = stored.whole(parts)
        del parts
        envelope = from_stored(stored, decode)
        if is_large:
            return_freed_memory()  # Of a message with a million files, 140 MB.
        return envelope
