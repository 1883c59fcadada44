"""Converts between dataclasses and protobuf; the only module that does.

Cores use the dataclasses of ``events.py``, ``commands.py``, ``job/`` and ``failure_detection/heartbeats.py``. NATS
carries protobuf messages of the same names; ``proto/schema.py`` derives them and the conversion. Other programs read
them with ``proto/control.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Annotated, Any, cast

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import StatesPart, TaskMessage, TaskRef
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import Envelope, WorkerStarted
from elasticdl.shared.names import Incarnation, PodName, Service
from elasticdl.shared.proto.schema import Codec, Schema

_FILE, _PACKAGE = "elasticdl/shared/proto/control.proto", "elasticdl.v1"
SCHEMA = Schema(
    _FILE,
    _PACKAGE,
    (Envelope, TaskMessage, StatesPart, Heartbeat, JobSpec, Annotated[Command, "CommandValue"]),
)
ENVELOPE = SCHEMA.codec(Envelope)
TASK = SCHEMA.codec(TaskMessage)
_SERVICE_BYTES = 2
MASTER_BYTES = bytes(ENVELOPE.message(service=list(Service).index(Service.MASTER) + 1).SerializeToString())
"""How an encoded envelope of the master begins."""
_STATES = SCHEMA.codec(StatesPart)
_HEARTBEAT = SCHEMA.codec(Heartbeat)
_SPEC = SCHEMA.codec(JobSpec)
_COMMAND: Codec[Command] = SCHEMA.codec(cast(Any, Command))

# See ``Codec.encode`` and ``Codec.decode``.
encode_envelope, decode_envelope = ENVELOPE.encode, ENVELOPE.decode
Decode = Callable[[bytes], Envelope]
encode_task, decode_task = TASK.encode, TASK.decode
encode_states_part, decode_states_part = _STATES.encode, _STATES.decode
encode_heartbeat, decode_heartbeat = _HEARTBEAT.encode, _HEARTBEAT.decode
encode_spec, decode_spec = _SPEC.encode, _SPEC.decode
encode_command, decode_command = _COMMAND.encode, _COMMAND.decode


def envelope_decoder(only: Mapping[type, Collection[str]]) -> Decode:
    """Like ``decode_envelope`` for those who read few fields of long logs. See ``Schema`` for ``only``."""
    return Schema(_FILE, _PACKAGE, (Envelope,), only).codec(Envelope).decode


def with_sender(data: bytes, name: PodName, incarnation: Incarnation, number: int) -> bytes:
    """An encoded envelope that lacks these fields, with them: they follow the first one, which is the service."""
    return data[:_SERVICE_BYTES] + encoded_sender(name, incarnation) + encoded_number(number) + data[_SERVICE_BYTES:]


def sender_of(data: bytes) -> tuple[PodName, Incarnation, int]:
    """What ``with_sender`` has put into an encoded envelope, whose rest may be damaged; for short names."""
    end = _SERVICE_BYTES
    for _ in range(2):
        end += 2 + data[end + 1]
    end += 1
    while data[end] & 0x80:
        end += 1
    found: Any = ENVELOPE.message.FromString(data[_SERVICE_BYTES : end + 1])
    return PodName(found.name), Incarnation(found.incarnation), found.number


@lru_cache(maxsize=4096)
def encoded_sender(name: PodName, incarnation: Incarnation) -> bytes:
    """These fields of an envelope, as they are encoded."""
    return bytes(ENVELOPE.message(name=name, incarnation=incarnation).SerializeToString())


@lru_cache(maxsize=4096)  # Senders count alike, so many of them have the same numbers at the same time.
def encoded_number(number: int) -> bytes:
    """This field of an envelope, as it is encoded."""
    return bytes(ENVELOPE.message(number=number).SerializeToString())


def may_be_about(task: TaskRef) -> Callable[[bytes], bool]:
    """Whether an encoded envelope may be about a task, without decoding it: a filter for long logs.

    Workers name the tasks that their events are about. All events of other services may be about any task.
    """
    reference = SCHEMA.codec(TaskRef).encode(task)
    worker = encode_envelope(
        Envelope(
            service=Service.WORKER,
            name=PodName("worker-0"),
            incarnation=Incarnation(""),
            number=1,
            time_s=0.0,
            event=WorkerStarted(),
        )
    )[:_SERVICE_BYTES]
    return lambda data: reference in data or not data.startswith(worker)
