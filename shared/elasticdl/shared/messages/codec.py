"""Converts between dataclasses and protobuf; the only module that does.

Cores use the dataclasses of ``events.py``, ``commands.py``, ``job/`` and ``failure_detection/heartbeats.py``. NATS
carries the messages of ``proto/control.proto``. Both have the same names; ``proto/reflection.py`` derives the
conversion and checks at import that they match. Conversions of old event versions belong here.
"""

from __future__ import annotations

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import StatesPart, TaskMessage
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.proto import control_pb2 as pb
from elasticdl.shared.proto.reflection import Codec

_ENVELOPE: Codec[Envelope] = Codec(Envelope, pb.Envelope)
_TASK: Codec[TaskMessage] = Codec(TaskMessage, pb.TaskMessage)
_STATES: Codec[StatesPart] = Codec(StatesPart, pb.StatesPart)
_HEARTBEAT: Codec[Heartbeat] = Codec(Heartbeat, pb.Heartbeat)
_SPEC: Codec[JobSpec] = Codec(JobSpec, pb.JobSpec)
_COMMAND: Codec[Command] = Codec(Command, pb.CommandValue)

# See ``Codec.encode`` and ``Codec.decode``.
encode_envelope, decode_envelope = _ENVELOPE.encode, _ENVELOPE.decode
encode_task, decode_task = _TASK.encode, _TASK.decode
encode_states_part, decode_states_part = _STATES.encode, _STATES.decode
encode_heartbeat, decode_heartbeat = _HEARTBEAT.encode, _HEARTBEAT.decode
encode_spec, decode_spec = _SPEC.encode, _SPEC.decode
encode_command, decode_command = _COMMAND.encode, _COMMAND.decode
