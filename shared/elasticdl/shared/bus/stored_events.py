"""How an event is stored: its subject and message id are not repeated, and the data of a large one lies beside the log.

No stored event takes more than ``EVENT_BYTES_MAX``. If its data is larger, it is compressed and written to the payloads
first, under the digest of its content, and the event on the log refers to it. Readers get the event whole again, so the
cores know nothing about it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from hashlib import blake2b

from elasticdl.shared.bus.ports import KeyValue
from elasticdl.shared.errors import FencedError, PermanentError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import NOBODY, Incarnation, PodName
from elasticdl.shared.process.operating_system import return_freed_memory

EVENT_BYTES_MAX = 512
"""The largest event on the log, with subject and headers."""
DATA_BYTES_MAX = 256
"""The largest data of an event; the rest is for subject, headers and the broker's own bytes."""
PART_BYTES_MAX = 512 << 10
"""The largest part of a payload: brokers limit messages, usually to 1 MiB."""
LARGE_PARTS = 4
"""After reading a payload of so many parts, most of what its decoding took is free."""
_COMPRESSION = 1
_NO_NAME = PodName("")


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as the broker stores it.

    Attributes:
        sender: pod name of the sender, the last part of the subject.
        id: the envelope's id, which is the message id.
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
        digest, _, count = self.payload.partition(".")
        return [f"{digest}-{part}" for part in range(int(count or 0))]

    def whole(self, parts: list[bytes]) -> StoredEvent:
        """The same with the data in it, from the parts of its payload."""
        return StoredEvent(self.sender, self.id, zlib.decompress(b"".join(parts))) if self.payload else self


def to_stored(envelope: Envelope) -> StoredEvent:
    """What the broker stores, with the data in it whatever its size."""
    rest = replace(envelope, name=_NO_NAME, incarnation=NOBODY, number=0)
    return StoredEvent(envelope.name, envelope.id, codec.encode_envelope(rest))


def from_stored(stored: StoredEvent) -> Envelope:
    """Inverse of ``to_stored``. Events of earlier versions repeat everything.

    Raises:
        ProtocolError: this version can't read the event.
    """
    envelope = codec.decode_envelope(stored.data)
    if envelope.incarnation:
        return envelope
    incarnation, _, number = stored.id.rpartition(".")
    return replace(envelope, name=stored.sender, incarnation=Incarnation(incarnation), number=int(number or 0))


class Payloads:
    """Writes and reads the data of large events.

    Args:
        parts: the parts of all payloads, by digest and number.
    """

    def __init__(self, parts: KeyValue) -> None:
        self._parts = parts

    async def store(self, envelope: Envelope) -> StoredEvent:
        """What to append for an event, once the broker has acknowledged its payload, if it needs one.

        Raises:
            TransientError: NATS was unreachable for longer than the settings allow.
            PermanentError: there is no space, or the stream is gone.
        """
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

    async def load(self, stored: StoredEvent) -> Envelope:
        """The event that was stored.

        Raises:
            PermanentError: its payload is lost.
            ProtocolError: this version can't read it.
            TransientError: NATS was unreachable for longer than the settings allow.
        """
        parts: list[bytes] = []
        for name in stored.parts:
            entry = await self._parts.read(name)
            if entry is None:
                raise PermanentError(f"the broker has lost payload {name} of event {stored.id}")
            parts.append(entry.value)
        is_large = len(parts) >= LARGE_PARTS
        stored = stored.whole(parts)
        del parts
        envelope = from_stored(stored)
        if is_large:
            return_freed_memory()  # Of a message with a million files, 140 MB.
        return envelope
