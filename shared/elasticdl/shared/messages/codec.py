"""Converts between dataclasses and protobuf; the only module that does.

Cores use the dataclasses of ``events.py``, ``commands.py``, ``job/`` and ``failure_detection/heartbeats.py``. NATS
carries the messages of ``proto/control.proto``. Both have the same names; ``proto/reflection.py`` derives the
conversion and checks at import that they match. Conversions of old event versions belong here.
"""

from __future__ import annotations

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.proto import control_pb2 as pb
from elasticdl.shared.proto.reflection import Codec

_ENVELOPE = Codec(Envelope, pb.Envelope)
_TASK = Codec(TaskMessage, pb.TaskMessage)
_HEARTBEAT = Codec(Heartbeat, pb.Heartbeat)
_SPEC = Codec(JobSpec, pb.JobSpec)
_COMMAND = Codec(Command, pb.CommandValue)


def encode_envelope(envelope: Envelope) -> bytes:
    """An envelope as the log stores it."""
    return _ENVELOPE.encode(envelope)


def decode_envelope(data: bytes) -> Envelope:
    """The inverse of ``encode_envelope``.

    Raises:
        ProtocolError: the bytes are not an envelope, or one of a newer version.
    """
    envelope: Envelope = _ENVELOPE.decode(data)
    return envelope


def encode_task(task: TaskMessage) -> bytes:
    """A task as the queue stores it."""
    return _TASK.encode(task)


def decode_task(data: bytes) -> TaskMessage:
    """The inverse of ``encode_task``.

    Raises:
        ProtocolError: the bytes are not a task.
    """
    task: TaskMessage = _TASK.decode(data)
    return task


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """A heartbeat."""
    return _HEARTBEAT.encode(heartbeat)


def decode_heartbeat(data: bytes) -> Heartbeat:
    """The inverse of ``encode_heartbeat``.

    Raises:
        ProtocolError: the bytes are not a heartbeat.
    """
    heartbeat: Heartbeat = _HEARTBEAT.decode(data)
    return heartbeat


def encode_spec(spec: JobSpec) -> bytes:
    """A job's specification, as it is stored with the snapshots."""
    return _SPEC.encode(spec)


def decode_spec(data: bytes) -> JobSpec:
    """The inverse of ``encode_spec``.

    Raises:
        ProtocolError: the bytes are not a specification.
    """
    spec: JobSpec = _SPEC.decode(data)
    return spec


def encode_command(command: Command) -> bytes:
    """A command."""
    return _COMMAND.encode(command)


def decode_command(data: bytes) -> Command:
    """The inverse of ``encode_command``.

    Raises:
        ProtocolError: the bytes are not a command, or one of a newer version.
    """
    command: Command = _COMMAND.decode(data)
    return command
