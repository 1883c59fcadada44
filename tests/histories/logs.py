"""Recorded event logs as files: each record is its length in four bytes, and the encoded envelope."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import Service

FOLDER = Path(__file__).parent
SUFFIX = ".log"
_LENGTH = struct.Struct("<I")


async def append(log: EventLog, envelopes: Iterable[Envelope], *, after: int = 0) -> int:
    """Append recorded events as their services did: those of masters in one order, the first after record ``after``.

    Returns:
        The number of the last record of a master.
    """
    master_seq = after
    for envelope in envelopes:
        if envelope.service is Service.MASTER:
            master_seq = await log.append_fenced(envelope, after=master_seq)
        else:
            await log.append(envelope)
    return master_seq


def read_log(path: Path) -> Iterator[LogRecord]:
    """The records of a file."""
    data, offset, seq = path.read_bytes(), 0, 0
    while offset < len(data):
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        seq += 1
        yield LogRecord(seq=seq, envelope=codec.decode_envelope(data[offset : offset + length]))
        offset += length


async def replayed(path: Path) -> AsyncIterator[LogRecord]:
    """The records of a file as a reader of the bus gets them."""
    for record in read_log(path):
        yield record


def write_log(path: Path, envelopes: Iterable[Envelope], hidden: dict[str, str]) -> None:
    """Write a file.

    Args:
        path: the file.
        envelopes: the records, in order.
        hidden: texts that are replaced wherever they occur, such as paths of the machine that recorded the log.
    """
    parts = []
    for envelope in envelopes:
        message = codec.ENVELOPE.message.FromString(codec.encode_envelope(envelope))
        _hide(message, hidden)
        data = message.SerializeToString(deterministic=True)
        parts += [_LENGTH.pack(len(data)), data]
    path.write_bytes(b"".join(parts))


def _hide(message: Message, hidden: dict[str, str]) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _hide_in_map(value, hidden)
        elif field.type == field.TYPE_MESSAGE:
            for each in [value] if isinstance(value, Message) else value:
                _hide(each, hidden)
        elif field.type == field.TYPE_STRING:
            if isinstance(value, str):
                setattr(message, field.name, _without(value, hidden))
            else:
                value[:] = [_without(each, hidden) for each in value]


def _hide_in_map(values: Any, hidden: dict[str, str]) -> None:
    for key, value in list(values.items()):
        if isinstance(value, str):
            values[key] = _without(value, hidden)
        elif isinstance(value, Message):
            _hide(value, hidden)


def _without(text: str, hidden: dict[str, str]) -> str:
    for found, instead in hidden.items():
        text = text.replace(found, instead)
    return text
