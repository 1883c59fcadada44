"""Converts between dataclasses and protobuf; the only module that does.

Cores use the dataclasses of ``events.py``, ``commands.py``, ``job/`` and ``failure_detection/heartbeats.py``. NATS
carries protobuf messages of the same names; ``proto/schema.py`` derives them and the conversion. Other programs read
them with ``proto/control.proto``.
"""

from __future__ import annotations

from typing import Annotated, Any, cast

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import StatesPart, TaskMessage
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.proto.schema import Codec, Schema

SCHEMA = Schema(
    "elasticdl/shared/proto/control.proto",
    "elasticdl.v1",
    (Envelope, TaskMessage, StatesPart, Heartbeat, JobSpec, Annotated[Command, "CommandValue"]),
)
ENVELOPE = SCHEMA.codec(Envelope)
TASK = SCHEMA.codec(TaskMessage)
_STATES = SCHEMA.codec(StatesPart)
_HEARTBEAT = SCHEMA.codec(Heartbeat)
_SPEC = SCHEMA.codec(JobSpec)
_COMMAND: Codec[Command] = SCHEMA.codec(cast(Any, Command))

# See ``Codec.encode`` and ``Codec.decode``.
encode_envelope, decode_envelope = ENVELOPE.encode, ENVELOPE.decode
encode_task, decode_task = TASK.encode, TASK.decode
encode_states_part, decode_states_part = _STATES.encode, _STATES.decode
encode_heartbeat, decode_heartbeat = _HEARTBEAT.encode, _HEARTBEAT.decode
encode_spec, decode_spec = _SPEC.encode, _SPEC.decode
encode_command, decode_command = _COMMAND.encode, _COMMAND.decode
