"""Messages as NATS' own tools show them become text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.views.recorded import recorded
from typer.testing import CliRunner

from elasticdl.cli.main import app
from elasticdl.shared.bus.stored_events import to_stored
from elasticdl.shared.errors import UserError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.commands import StopPod
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service
from elasticdl.views.records import one_line
from elasticdl.views.stored_messages import message_text, messages_of

RECORDS = recorded("plain")
TASK = codec.encode_task(TaskMessage(task=TaskRef(purpose=Purpose.TRAIN, number=17), dispatch=3, term=1, run="r"))


def as_json(subject: str, data: bytes, seq: int = 1, **headers: str) -> dict[str, Any]:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n".encode()
    encoded = {"hdrs": base64.b64encode(block).decode()} if headers else {}
    return {"subject": subject, "seq": seq, "data": base64.b64encode(data).decode(), **encoded}


def text(content: bytes | str, subject: str = "") -> str:
    given = content.encode() if isinstance(content, str) else content
    return "\n".join(map(message_text, messages_of(given, subject)))


def test_events_are_the_lines_of_the_command_events() -> None:
    stored = [to_stored(record.envelope) for record in RECORDS]
    found = [
        as_json(f"edl.v1.job.event.worker.{record.envelope.name}", each.data, record.seq, Nats_Msg_Id=each.id)
        for record, each in zip(RECORDS, stored, strict=True)
    ]
    assert text("\n".join(map(json.dumps, found))).split("\n") == list(map(one_line, RECORDS))
    assert text(json.dumps({"type": "response", "message": found[3]})) == one_line(RECORDS[3])


def test_other_messages_have_their_fields() -> None:
    assert text(json.dumps(as_json("edl.v1.job.task.train", TASK, 9))) == (
        "#9 TaskMessage task=train 17 dispatch=3 term=1 evaluation=0 run=r"
    )
    heartbeat = Heartbeat(
        service=Service.WORKER, name=PodName("worker-0"), incarnation=Incarnation("i"), time_s=1.0, metrics={}
    )
    said = text(codec.encode_heartbeat(heartbeat), "edl.v1.job.heartbeat.worker.worker-0")
    assert said.startswith("worker-0 Heartbeat service=worker")
    order = codec.encode_command(StopPod(pod=PodName("ps-0"), reason="scaled down"))
    assert text(order, "edl.v1.job.order.ps-0").startswith("to ps-0: StopPod pod=ps-0 reason=scaled down")
    register = json.dumps(as_json("edl.v1.job.model.ps-0", b"12345", 4))
    assert text(register) == "#4 edl.v1.job.model.ps-0: the ps' register: claim, then model versions (5 bytes)"


def test_the_data_of_a_large_event_lies_beside_the_log() -> None:
    name = f"{'a' * 32}.2"
    found = as_json("edl.v1.job.event.launcher.launcher", b"", 1, Nats_Msg_Id="x.1", Elasticdl_Payload=name)
    assert text(json.dumps(found)).endswith(f"payload.{'a' * 32}-0, payload.{'a' * 32}-1")


@pytest.mark.parametrize(
    ("content", "subject", "problem"),
    [
        ("{", "", "not a stored message in JSON"),
        ("hello", "", "not a stored message in JSON"),
        ("{}", "", "not a stored message in JSON"),
        (b"\xff\x00", "", "not a stored message in JSON"),
        (b"\xff\x00", "edl.v1.job.task.train", "can't be read"),
        (json.dumps(as_json("edl.v1.job.event.worker.w", b"\xff", 1, Nats_Msg_Id="x.1")), "", "can't be read"),
        (b"", "orders.new", "is not the subject of a message of a job"),
    ],
)
def test_what_is_no_message_is_refused(content: bytes | str, subject: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        text(content, subject)


def test_the_command_reads_a_file_or_its_input(tmp_path: Path) -> None:
    path = tmp_path / "task"
    path.write_bytes(TASK)
    named = CliRunner().invoke(app, ["events", "decode", str(path), "--subject=edl.v1.job.task.train"])
    piped = CliRunner().invoke(app, ["events", "decode"], input=json.dumps(as_json("edl.v1.job.task.train", TASK, 9)))
    assert (named.exit_code, piped.exit_code) == (0, 0)
    assert named.output.removeprefix("#0") == piped.output.removeprefix("#9")
    empty = CliRunner().invoke(app, ["events", "decode"], input="")
    assert isinstance(empty.exception, UserError)
