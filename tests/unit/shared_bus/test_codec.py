from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.shared_bus.strategies import values

from elasticdl.shared.errors import InvariantError, ProtocolError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.commands import Command, EnterState, JobState
from elasticdl.shared.messages.events import (
    Decided,
    Envelope,
    Event,
    FailureKind,
    StepReached,
    TaskFinished,
    WorkerFailed,
)
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service
from elasticdl.shared.proto import published
from elasticdl.shared.proto.fields import cases
from elasticdl.shared.proto.schema import Schema


def envelope(event: Event) -> Envelope:
    return Envelope(
        service=Service.WORKER,
        name=PodName("worker-0"),
        incarnation=Incarnation("0123456789ab"),
        number=7,
        cause="m.3",
        time_s=1.5,
        event=event,
    )


MESSAGE: Any = codec.ENVELOPE.message
FINISHED = envelope(
    TaskFinished(
        task=TaskRef(purpose=Purpose.EVALUATE, number=300),
        dispatch=2,
        attempt=1,
        absorbed_by=7,
        records=64,
        batches=2,
        loss_sum=0.5,
        states={"auc": (b"\x01", b"")},
        times=Times.of({"read": 0.5, "compute": 1.5}),
    )
)
FINISHED_BYTES = bytes.fromhex(
    "08021208776f726b65722d301a0c30313233343536373839616220072a036d2e3331000000000000f83fea01340a05080210ac0210021801"
    "2040280231000000000000e03f3a0c0a0361756312050a01010a0048016807720808a0c21e20e0c65b"
)


@pytest.mark.parametrize("kind", cases(Event), ids=lambda kind: kind.__name__)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_event_survives(kind: type, data: st.DataObject) -> None:
    sent = envelope(data.draw(values(kind)))
    assert codec.decode_envelope(codec.encode_envelope(sent)) == sent


@settings(max_examples=100, deadline=None)
@given(sent=values(Envelope))
def test_every_envelope_survives(sent: Envelope) -> None:
    assert codec.decode_envelope(codec.encode_envelope(sent)) == sent


@settings(max_examples=100, deadline=None)
@given(command=values(Command))
def test_every_command_survives(command: Command) -> None:
    assert codec.decode_command(codec.encode_command(command)) == command


@settings(max_examples=50, deadline=None)
@given(task=values(TaskMessage), heartbeat=values(Heartbeat), spec=values(JobSpec))
def test_tasks_beats_and_specifications_survive(task: TaskMessage, heartbeat: Heartbeat, spec: JobSpec) -> None:
    assert codec.decode_task(codec.encode_task(task)) == task
    assert codec.decode_heartbeat(codec.encode_heartbeat(heartbeat)) == heartbeat
    assert codec.decode_spec(codec.encode_spec(spec)) == spec


def test_the_bytes_of_an_event_stay_as_they_are() -> None:
    assert codec.encode_envelope(FINISHED).hex() == FINISHED_BYTES.hex()
    assert codec.decode_envelope(FINISHED_BYTES) == FINISHED


def test_the_bytes_of_a_command_stay_as_they_are() -> None:
    command = EnterState(state=JobState.FAILED, message="no", guilty="worker-1")
    assert codec.encode_command(command).hex() == "5210080612026e6f1a08776f726b65722d31"


def test_the_bytes_of_a_task_stay_as_they_are() -> None:
    task = TaskMessage(task=TaskRef(purpose=Purpose.TRAIN, number=5), dispatch=2, term=1)
    assert codec.encode_task(task).hex() == "0a040801100510021801"


def test_a_message_without_any_field_set_is_still_an_event() -> None:
    sent = envelope(StepReached(step=0))
    assert codec.decode_envelope(codec.encode_envelope(sent)) == sent


def test_texts_that_are_not_unicode_are_made_readable() -> None:
    sent = envelope(WorkerFailed(kind=FailureKind.USER_CODE, message="bad name \udcff"))
    received = codec.decode_envelope(codec.encode_envelope(sent)).event
    assert isinstance(received, WorkerFailed)
    assert received.message == r"bad name \udcff"


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff",
        b"",  # no event
        MESSAGE(service=99, step_reached={}).SerializeToString(),
        MESSAGE(step_reached={}).SerializeToString(),
        MESSAGE(service=1).SerializeToString(),
        MESSAGE(service=1, job_submitted={"spec": {}}).SerializeToString(),
    ],
    ids=["garbage", "empty", "unknown enum", "unset enum", "no event", "invalid plan"],
)
def test_malformed_bytes_are_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.decode_envelope(data)


@given(data=st.binary(max_size=64))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    for decode in (
        codec.decode_envelope,
        codec.decode_task,
        codec.decode_heartbeat,
        codec.decode_spec,
        codec.decode_command,
    ):
        try:
            decode(data)
        except ProtocolError:
            continue


def test_a_value_that_does_not_fit_is_an_invariant_error() -> None:
    with pytest.raises(InvariantError, match="Envelope"):
        codec.encode_envelope(envelope(StepReached(step=1 << 63)))
    with pytest.raises(InvariantError):
        codec.encode_envelope(envelope(Decided(term=1, after_seq=0, now_s=0.0, commands=("stop",))))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", published.FILES, ids=lambda path: path.name)
def test_a_published_schema_is_that_of_the_dataclasses(path: Path) -> None:
    assert path.read_text() == published.published(published.FILES[path]), "run make proto"


def test_a_number_that_changes_its_meaning_is_found() -> None:
    old = next(iter(published.FILES)).read_text()
    assert published.renumbered(old, old) == []
    new = old.replace("  string reply = 4;\n", "  string more = 4;\n  string reply = 5;\n")
    assert published.renumbered(old, new) == ["TaskTaken 4: reply, now more"]
    gone = old.replace("  string reply = 4;\n", "")
    assert published.renumbered(old, gone) == [], "the last field may go"


@pytest.mark.parametrize("hint", [list[int], int | str, tuple[int, str], object])
def test_a_hint_without_a_rule_is_found_when_the_schema_is_made(hint: Any) -> None:
    kind = dataclasses.make_dataclass("Wrong", [("field", hint)])
    with pytest.raises(InvariantError, match="there is no rule"):
        Schema("wrong.proto", "wrong", [kind])


def test_many_threads_may_decode_their_first_events_at_once() -> None:
    for _ in range(20):
        schema = Schema("control.proto", "elasticdl.v1", [Envelope])
        new = schema.codec(Envelope)
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(new.decode, [FINISHED_BYTES] * 8)) == [FINISHED] * 8
