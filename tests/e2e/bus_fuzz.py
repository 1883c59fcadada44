"""Publishes wrong messages on the bus of a running job, with the job's own credential."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from random import Random

from elasticdl.shared.bus import BusSettings, subjects
from elasticdl.shared.bus.nats_bus.connection import Connection, RefusedError
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.commands import TakeSnapshot
from elasticdl.shared.messages.events import TermStarted
from elasticdl.shared.messages.registers import decode_register, encode_register
from elasticdl.shared.model.placement import Placement, decode_placement, encode_placement
from elasticdl.shared.names import MASTER, Incarnation, JobId, PodName, Purpose, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory

STRANGER = Incarnation("beefbeefbeef")
FAR = 1 << 52
FAR_S = 1e11
_ID, _TERM = "Nats-Msg-Id", "Elasticdl-Term"


class Wrong(Enum):
    """What is wrong with a message."""

    GARBAGE = "garbage"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    HUGE = "huge"
    OTHER_TERM = "other term"
    OTHER_INCARNATION = "other incarnation"
    FAR_FUTURE = "far future"
    REPLAYED = "replayed"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A right message of a subject: the last one that is stored, or one like those that are sent."""

    subject: str
    data: bytes
    headers: Mapping[str, str]


Messages = Iterator[tuple[bytes, Mapping[str, str]]]
PS, WORKER = PodName("ps-0"), PodName("worker-0")

SUBJECTS: dict[str, Callable[[JobId], tuple[str, str]]] = {
    "task": lambda job: (subjects.tasks_stream(job), subjects.task(job, Purpose.TRAIN)),
    "task again": lambda job: (subjects.tasks_stream(job), subjects.task(job, Purpose.TRAIN, again=True)),
    "event of a worker": lambda job: (subjects.events_stream(job), subjects.event(job, Service.WORKER, WORKER)),
    "event of the ps": lambda job: (subjects.events_stream(job), subjects.event(job, Service.PS, PS)),
    "event of the launcher": lambda job: (
        subjects.events_stream(job),
        subjects.event(job, Service.LAUNCHER, PodName("launcher")),
    ),
    "decision": lambda job: (subjects.events_stream(job), subjects.decision(job)),
    "register": lambda job: (subjects.model_stream(job), subjects.register(job, PS)),
    "placement": lambda job: (subjects.model_stream(job), subjects.register(job, subjects.PLACEMENT)),
    "ring": lambda job: (subjects.model_stream(job), subjects.register(job, subjects.RING)),
    "core snapshot": lambda job: (subjects.core_stream(job), subjects.core(job, MASTER)),
    "part of a core snapshot": lambda job: (subjects.core_stream(job), subjects.core(job, f"{MASTER}.cafe-0")),
    "payload": lambda job: (subjects.payloads_stream(job), subjects.payload(job, f"{'a' * 32}-0")),
    "states": lambda job: (subjects.states_stream(job), subjects.states(job, "epoch-1")),
    "heartbeat": lambda job: ("", subjects.heartbeat(job, Service.WORKER, WORKER)),
    "wake": lambda job: ("", subjects.wake(job)),
    "order": lambda job: ("", subjects.order(job, PS)),
}
"""Subject, in words -> its stream and a subject of a job. A test compares them with the table of subjects."""


async def attack(run: Path, name: str, kinds: list[Wrong], seed: str) -> None:
    """Publish wrong messages of some kinds on a subject of the job in a run directory."""
    record = json.loads((run / "job.json").read_text())
    job = JobId(record["job"])
    stream, subject = SUBJECTS[name](job)
    connection = await Connection.open(record["nats_url"], job, BusSettings())
    random = Random(seed)
    try:
        sample = await _sample(connection, stream, subject)
        for kind in kinds:
            for data, headers in _messages(kind, name, sample, random, connection.client.max_payload):
                with suppress(ElasticDLError):  # The broker refuses what is too large for a stream.
                    await connection.client.publish(subject, data, headers=dict(headers), reply="")
                await connection.client.flush()
    finally:
        await connection.close()


async def _sample(connection: Connection, stream: str, subject: str) -> Sample:
    if stream:
        with suppress(RefusedError):  # There is none at the moment.
            found = (await connection.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject}))["message"]
            lines = base64.b64decode(found.get("hdrs", "")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if ": " in line)
            return Sample(subject=subject, data=base64.b64decode(found.get("data", "")), headers=headers)
    return Sample(subject=subject, data=b"", headers={})


def _messages(kind: Wrong, name: str, sample: Sample, random: Random, bytes_max: int) -> Messages:
    data = sample.data or _made(name)
    kept = {key: value for key, value in sample.headers.items() if key == "Elasticdl-Payload"}
    match kind:
        case Wrong.GARBAGE:
            yield from ((random.randbytes(random.randint(1, 200)), {}) for _ in range(5))
            yield random.randbytes(64), {"Elasticdl-Payload": f"{'b' * 32}.30000000", _ID: f"{STRANGER}.1"}
        case Wrong.EMPTY:
            yield b"", {}
        case Wrong.TRUNCATED:
            yield data[: len(data) // 2], {}
            yield data[:-1], {}
        case Wrong.HUGE:
            yield random.randbytes(bytes_max - 4096), {}
        case Wrong.REPLAYED:
            yield data, sample.headers
            yield data, {**kept, _ID: f"{STRANGER}.{random.randint(1, 99)}"}
        case Wrong.OTHER_TERM | Wrong.OTHER_INCARNATION | Wrong.FAR_FUTURE:
            yield from _changed(kind, name, data, sample)


def _made(name: str) -> bytes:
    clock = SystemClock()
    match name:
        case "heartbeat":
            beat = Heartbeat(service=Service.WORKER, name=WORKER, incarnation=STRANGER, time_s=clock.now(), metrics={})
            return codec.encode_heartbeat(beat)
        case "order":
            return codec.encode_command(TakeSnapshot(ps=PS, request=1 << 40, reason="a wrong order"))
        case "placement":
            return encode_placement(Placement.even(1))
        case "wake":
            return b"train"
        case _:
            return b"nothing of this kind"


def _changed(kind: Wrong, name: str, data: bytes, sample: Sample) -> Messages:
    clock = SystemClock()
    is_far = kind is Wrong.FAR_FUTURE
    if name.startswith("task") and sample.data:
        message = codec.decode_task(data)
        if kind is Wrong.OTHER_TERM:
            yield codec.encode_task(replace(message, term=FAR)), {}
        elif is_far:
            far = replace(message, task=replace(message.task, number=FAR))
            yield codec.encode_task(replace(far, dispatch=FAR)), {}
        else:
            yield codec.encode_task(replace(message, run=STRANGER)), {}
    elif name == "decision" and kind is Wrong.OTHER_TERM:
        factory = EnvelopeFactory(service=Service.MASTER, name=MASTER, incarnation=STRANGER, clock=clock)
        envelope = replace(factory.envelope(TermStarted(term=1000)), incarnation=Incarnation(""), name=PodName(""))
        yield codec.encode_envelope(replace(envelope, number=0)), {_ID: f"{STRANGER}.1"}
    elif (name.startswith("event") or name == "decision") and "Elasticdl-Payload" not in sample.headers:
        sender = sample.headers.get(_ID, "cafe.1").rpartition(".")[0]
        if sample.data and is_far:
            late = replace(codec.decode_envelope(data), time_s=FAR_S)
            yield codec.encode_envelope(late), {_ID: f"{sender}.{FAR}"}
        elif sample.data:
            yield data, {_ID: f"{STRANGER}.1"}
    elif name == "register" and sample.data:
        register = decode_register(data)
        step = FAR if is_far else register.step
        yield encode_register(replace(register, incarnation=STRANGER, step=step)), {}
    elif name == "placement":
        placement = decode_placement(data)
        yield encode_placement(replace(placement, version=FAR if is_far else placement.version)), {}
    elif name == "heartbeat":
        beat = codec.decode_heartbeat(data)
        yield codec.encode_heartbeat(replace(beat, time_s=FAR_S if is_far else beat.time_s)), {}
    elif name == "order" and kind is Wrong.FAR_FUTURE:
        yield data, {_TERM: "0"}
    else:
        yield data, {_ID: f"{STRANGER}.{FAR}"}
