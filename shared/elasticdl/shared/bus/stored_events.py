"""How an event is stored on the log: what its subject and its message id say is not repeated in its bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import NOBODY, Incarnation, PodName

_NO_NAME = PodName("")


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as the broker stores it.

    Attributes:
        sender: pod name of the sender, the last part of the subject.
        id: the envelope's id, which is the message id.
        data: all else.
    """

    sender: PodName
    id: str
    data: bytes


def to_stored(envelope: Envelope) -> StoredEvent:
    """What the broker stores."""
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
