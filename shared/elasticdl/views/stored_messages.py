"""Messages as NATS' own tools show them, as text: events, tasks, heartbeats, commands. Pure.

JetStream's API and ``nats stream get --json`` describe a stored message as a JSON object: ``subject``, ``seq``, and in
base64 ``hdrs`` and ``data``. ``nats sub --raw`` prints the data alone; then the subject must be given.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.stored_events import StoredEvent, from_stored
from elasticdl.shared.errors import ProtocolError, UserError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import PodName
from elasticdl.views.records import command_text, fields_text, one_line

ID, PAYLOAD = "nats-msg-id", "elasticdl-payload"
"""Headers of an event, in small letters: its id, and the name of the data that lies beside the log."""
_PREFIX = ("edl", "v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message with its place in its stream; ``seq``: 0: it is not stored. Names of headers are in small letters."""

    subject: str
    data: bytes
    seq: int
    headers: dict[str, str]


def messages_of(content: bytes, subject: str = "") -> Iterator[StoredMessage]:
    """The messages in what a tool has printed: JSON objects one after the other, or the data of one message.

    Args:
        subject: of the data, or empty: the content is JSON.

    Raises:
        UserError: it is neither.
    """
    if subject:
        yield StoredMessage(subject=subject, data=content, seq=0, headers={})
        return
    try:
        text, decoder, place = content.decode(), json.JSONDecoder(), 0
        while place < len(text.rstrip()):
            found, place = decoder.raw_decode(text, len(text) - len(text[place:].lstrip()))
            yield _of_json(found.get("message", found))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            "this is not a stored message in JSON",
            hint="Print one with: nats stream get STREAM NUMBER --json. For the data alone, add --subject=SUBJECT.",
        ) from error


def _of_json(found: dict[str, Any]) -> StoredMessage:
    values = {name.lower(): value for name, value in found.items()}
    headers = base64.b64decode(values.get("hdrs") or "").decode()
    lines = (line.partition(":") for line in headers.splitlines()[1:])
    return StoredMessage(
        subject=str(values["subject"]),
        data=base64.b64decode(values.get("data") or ""),
        seq=int(values.get("seq") or 0),
        headers={name.strip().lower(): value.strip() for name, _, value in lines if name},
    )


def message_text(message: StoredMessage) -> str:
    """A message in one line.

    Raises:
        UserError: it is not of a job, or this version can't read it.
    """
    parts = message.subject.split(".")
    if tuple(parts[:2]) != _PREFIX or len(parts) < len(_PREFIX) + 2:
        raise UserError(
            f"{message.subject} is not the subject of a message of a job", hint="They begin with edl.v1.JOB."
        )
    try:
        return _text(message, parts[3], PodName(parts[-1]))
    except ProtocolError as error:
        if message.data.endswith(b"\n"):  # A tool has ended its output with it. Alone it makes no message valid.
            return message_text(replace(message, data=message.data[:-1]))
        raise UserError(f"the message on {message.subject} can't be read: {error}") from error


def _text(message: StoredMessage, kind: str, name: PodName) -> str:
    match kind:
        case "event" if not message.headers:
            return f"{name} {fields_text(codec.decode_envelope(message.data).event)}"
        case "event":
            stored = StoredEvent(name, message.headers.get(ID, ""), message.data, message.headers.get(PAYLOAD, ""))
            if stored.payload:
                where = ", ".join(f"payload.{part}" for part in stored.parts)
                return f"#{message.seq} {name}: an event whose data lies beside the log: {where}"
            return one_line(LogRecord(seq=message.seq, envelope=from_stored(stored)))
        case "task":
            return f"#{message.seq} {fields_text(codec.decode_task(message.data))}"
        case "heartbeat":
            return f"{name} {fields_text(codec.decode_heartbeat(message.data))}"
        case "order":
            return f"to {name}: {command_text(codec.decode_command(message.data))}"
        case _:
            content = {row.subject.split(".")[3]: row.content for row in subjects.TABLE}.get(kind, "an unknown content")
            return f"#{message.seq} {message.subject}: {content} ({len(message.data):,} bytes)"
