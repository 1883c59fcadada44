"""What the real server does that the design relies on, and what happens when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from nats.aio.msg import Msg
from tests.contract.bus.conftest import SETTINGS
from tests.contract.bus.values import decision, fact, large_event, task
from tests.deadline import DEADLINE_S
from tests.unit.master.driver import job_spec, plan

from elasticdl.shared.bus import BusSettings, KeyValueEntry, subjects
from elasticdl.shared.bus.nats_bus import check_server, connect, stored_jobs
from elasticdl.shared.bus.nats_bus.connection import Connection, RefusedError
from elasticdl.shared.bus.nats_bus.publications import Publication
from elasticdl.shared.bus.nats_bus.stored_message_inbox import StoredMessageInbox
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.bus.stored_events import EVENT_BYTES_MAX
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.events import (
    Decided,
    Event,
    FailureKind,
    GroupLedger,
    JobSubmitted,
    MessageUnreadable,
    PsStarted,
    TaskFailed,
    TaskFinished,
    TasksFinished,
)
from elasticdl.shared.names import GroupId, Incarnation, JobId, PodInstance, PodName, Purpose, Service, new_job_id


async def test_the_expected_sequence_is_checked_before_repetitions_are_recognised(nats_url: str, job: JobId) -> None:
    bus = await connect(nats_url, job, SETTINGS)
    connection = await Connection.open(nats_url, job, SETTINGS)
    subject, stream = subjects.decision(job), subjects.events_stream(job)
    headers = {"Nats-Msg-Id": "same", "Nats-Expected-Last-Subject-Sequence": "0"}
    assert await connection.store(stream, subject, b"x", headers) == 1
    with pytest.raises(RefusedError, match="wrong last sequence"):
        await connection.store(stream, subject, b"x", headers)
    await bus.log.append(fact(1))  # another subject of the stream does not count
    assert await connection.store(stream, subject, b"y", {"Nats-Expected-Last-Subject-Sequence": "1"}) == 3
    await connection.close()
    await bus.close()


async def test_a_server_knows_the_jobs_whose_event_logs_it_keeps(nats_url: str) -> None:
    for job in ("deepfm-0a1b2c", "b-EVENTS-1"):
        await (await connect(nats_url, JobId(job), SETTINGS)).close()
    found = await stored_jobs(nats_url)
    assert {"deepfm-0a1b2c", "b-EVENTS-1"} <= set(found) and len(found) == len(set(found))


async def test_no_stored_event_is_larger_than_the_limit(nats_url: str) -> None:
    """With the longest name that a job can have, and the largest events that stay on the log."""
    job = JobId("a" * 57)
    bus = await connect(nats_url, job, SETTINGS)
    connection = await Connection.open(nats_url, job, SETTINGS)
    largest, size, after = 0, 0, 0
    for number in range(1, 120):
        event = large_event(2 * number, salt=str(number))
        after = await bus.log.append_fenced(replace(decision(number), number=10**6 + number, event=event), after=after)
        state = (await connection.api(f"STREAM.INFO.{subjects.events_stream(job)}", {}))["state"]
        largest, size = max(largest, state["bytes"] - size), state["bytes"]
    assert EVENT_BYTES_MAX - 60 < largest <= EVENT_BYTES_MAX
    await connection.close()
    await bus.close()


def events_of_a_large_job() -> list[Event]:
    """A job of 100,000 files and 64 ps, whose AUC has 1,000 thresholds."""
    sources = tuple(
        Source(uri=f"s3://bucket/{number}.csv", size_bytes=1000, etag=f"{number:032x}", records=10)
        for number in range(100_000)
    )
    ledger = LedgerRecord(finished=tuple((task, task + 1) for task in range(0, 4000, 2)), step=1, records=1, checksum=1)
    ledgers = tuple(
        GroupLedger(group=GroupId(f"ps-{number}"), ledger=ledger, partitions=((4 * number, 4 * number + 4),))
        for number in range(64)
    )
    task = TaskRef(purpose=Purpose.TRAIN, number=10**6)
    stops = tuple(
        commands.StopPod(pod=PodName(f"ps-{number}"), reason="the job has succeeded", instance=PodInstance("1-2"))
        for number in range(64)
    )
    return [
        JobSubmitted(spec=job_spec(replace(plan(), sources=sources))),
        PsStarted(address="127.0.0.1:4000", ledgers=ledgers, claim=1),
        TaskFinished(
            task=task,
            dispatch=10**6,
            attempt=1,
            absorbed_by=ps_set_digest({PodName(f"ps-{number}"): Incarnation(f"{number:012x}") for number in range(64)}),
            states={"auc": tuple(Random(number).randbytes(8000) for number in range(4))},
            staleness=dict.fromkeys(range(64), 1),
        ),
        TaskFailed(
            task=task, dispatch=1, attempt=1, kind=FailureKind.USER_CODE, message="m", traceback="line\n" * 5000
        ),
        Decided(term=1, after_seq=10**6, now_s=1.7e9, commands=stops, reasons=("the audit is exact",)),
        TasksFinished(finished=tuple(TaskFinished(task=task, dispatch=10**6, attempt=1) for _ in range(16))),
    ]


@pytest.mark.parametrize("number", range(6))
async def test_the_events_of_a_large_job_are_bounded(nats_url: str, number: int) -> None:
    event = events_of_a_large_job()[number]
    job = new_job_id("large")
    bus = await connect(nats_url, job, SETTINGS)
    sent = fact(1, event=event)
    await bus.log.append(sent)
    connection = await Connection.open(nats_url, job, SETTINGS)
    state = (await connection.api(f"STREAM.INFO.{subjects.events_stream(job)}", {}))["state"]
    assert state["bytes"] <= EVENT_BYTES_MAX
    assert (await anext(aiter(bus.log.read(0)))).envelope == sent
    await connection.close()
    await bus.close()


async def test_an_event_whose_payload_is_lost_is_named(nats_url: str, job: JobId) -> None:
    bus = await connect(nats_url, job, SETTINGS)
    await bus.log.append(fact(1, event=large_event(5000)))
    connection = await Connection.open(nats_url, job, SETTINGS)
    await connection.api(f"STREAM.DELETE.{subjects.payloads_stream(job)}", {})
    await connection.close()
    await bus.close()
    bus = await connect(nats_url, job, SETTINGS)
    record = await anext(aiter(bus.log.read(0)))
    assert record.envelope.id == "aaaaaaaaaaaa.1"
    assert isinstance(record.envelope.event, MessageUnreadable)
    assert "has lost its payload" in record.envelope.event.reason
    await bus.close()


async def test_a_nak_from_another_client_redelivers_long_before_the_lease_ends(nats_url: str, job: JobId) -> None:
    patient = BusSettings(lease_s=3600.0)
    master, worker, other = [await connect(nats_url, job, patient) for _ in range(3)]
    await master.tasks.publish([(task(0), False)])
    delivery = await worker.tasks.take([Purpose.TRAIN])
    assert delivery is not None
    await master.tasks.give_back(delivery.reply)
    again = await other.tasks.take([Purpose.TRAIN])
    assert again is not None
    assert again.attempt == 2
    for bus in (master, worker, other):
        await bus.close()


async def test_messages_that_are_published_at_once_are_stored_once_each_and_a_refusal_is_an_error(
    nats_url: str, job: JobId
) -> None:
    bus = await connect(nats_url, job, SETTINGS)
    connection = await Connection.open(nats_url, job, SETTINGS)
    subject, stream = subjects.event(job, Service.PS, PodName("ps-0")), subjects.events_stream(job)
    messages = [
        Publication(subject=subject, payload=b"x", headers={"Nats-Msg-Id": str(number)}) for number in range(300)
    ]
    await connection.store_all(stream, messages[:3])
    await connection.store_all(stream, messages)
    assert await bus.log.last_seq() == 300
    behind = {"Nats-Msg-Id": "behind", "Nats-Expected-Last-Sequence": "7"}
    with pytest.raises(RefusedError, match="wrong last sequence"):
        await connection.store_all(stream, [Publication(subject=subject, payload=b"x", headers=behind)])
    await connection.close()
    await bus.close()


async def test_streams_that_exist_are_kept(nats_url: str, job: JobId) -> None:
    first = await connect(nats_url, job, SETTINGS)
    await first.log.append(fact(1))
    second = await connect(nats_url, job, BusSettings(events_bytes_max=1 << 20))
    assert await second.log.last_seq() == 1
    await first.close()
    await second.close()


async def test_a_killed_server_loses_nothing_that_was_acknowledged(own_server: NatsServer, job: JobId) -> None:
    url = own_server.start()
    bus = await connect(url, job, SETTINGS)
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def read() -> None:
        async for record in bus.log.read(0):
            seen.put_nowait(record.envelope.number)

    reading = asyncio.create_task(read())
    for number in range(1, 51):
        await bus.log.append(fact(number))
    await bus.tasks.publish([(task(number, purpose=Purpose.MERGE), False) for number in range(3)])
    held = await bus.tasks.take([Purpose.MERGE])
    assert held is not None
    first = await bus.log.append_fenced(decision(1), after=0)
    claim = await bus.registers.write("ps-0", b"claim", after=0)

    own_server.kill()
    late = [asyncio.create_task(bus.log.append(fact(number))) for number in range(51, 61)]
    deciding = asyncio.create_task(bus.log.append_fenced(decision(2), after=first))
    acknowledging = asyncio.create_task(held.ack())
    assert own_server.start() == url
    assert await asyncio.gather(*late)
    await deciding
    await acknowledging

    numbers = [await seen.get() for _ in range(62)]
    assert sorted(numbers) == sorted([*range(1, 61), 1, 2])
    assert numbers[:50] == list(range(1, 51))
    assert await bus.log.last_seq() == 62
    assert await bus.registers.read("ps-0") == KeyValueEntry(value=b"claim", seq=claim)
    left = [await bus.tasks.take([Purpose.MERGE]) for _ in range(3)]
    assert [each.task.task.number if each else None for each in left] == [1, 2, None]
    await bus.close()
    await reading


async def test_a_busy_reader_gets_every_record_in_order(nats_url: str, job: JobId) -> None:
    bus = await connect(nats_url, job, replace(SETTINGS, gather_s=0.01, read_batch=7))
    numbers = range(1, 301)

    async def write() -> None:
        for number in numbers:
            await bus.log.append(fact(number))

    writing = asyncio.create_task(write())
    reading = aiter(bus.log.read(0))
    assert [(await anext(reading)).envelope.number for _ in numbers] == list(numbers)
    await writing
    await bus.close()


async def test_a_reader_has_one_request_at_a_time(nats_url: str, job: JobId) -> None:
    bus = await connect(nats_url, job, replace(SETTINGS, gather_s=0.01))
    connection = await Connection.open(nats_url, job, SETTINGS)
    reading = aiter(bus.log.read(0))
    for number in range(1, 31):
        await bus.log.append(fact(number))
        assert (await anext(reading)).envelope.number == number
    (reader,) = (await connection.api(f"CONSUMER.LIST.{subjects.events_stream(job)}", {}))["consumers"]
    assert reader["num_waiting"] <= 1
    await connection.close()
    await bus.close()


async def test_a_training_task_that_is_acknowledged_is_not_delivered_again(nats_url: str, job: JobId) -> None:
    bus = await connect(nats_url, job, BusSettings(lease_s=0.2))
    await bus.tasks.publish([(task(0), False), (task(1), False)])
    for _ in range(2):
        delivery = await bus.tasks.take([Purpose.TRAIN])
        assert delivery is not None
        await delivery.ack()
    await bus.tasks.wait(0.4)  # Two leases.
    assert await bus.tasks.take([Purpose.TRAIN]) is None
    await bus.close()


async def test_a_reader_notices_that_its_log_was_lost(nats_url: str, job: JobId) -> None:
    bus = await connect(nats_url, job, SETTINGS)
    connection = await Connection.open(nats_url, job, SETTINGS)
    await bus.log.append(fact(1))
    reading = bus.log.read(0)
    assert (await anext(aiter(reading))).seq == 1
    await connection.api(f"STREAM.DELETE.{subjects.events_stream(job)}", {})
    with pytest.raises(PermanentError, match="has lost the stream"):
        await anext(aiter(reading))
    with pytest.raises(PermanentError, match="has lost the stream"):
        await bus.log.append(fact(2))
    await connection.close()
    await bus.close()


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(nats_url: str, job: JobId) -> None:
    asking = await Connection.open(nats_url, job, replace(SETTINGS, answer_s=DEADLINE_S))
    answering = await Connection.open(nats_url, job, SETTINGS)
    late: asyncio.Queue[bytes] = asyncio.Queue()
    requests: list[Msg] = []
    is_asked = asyncio.Event()

    async def answer(message: Msg) -> None:
        requests.append(message)
        is_asked.set()
        if len(requests) == 2:
            for each in requests:
                await answering.client.publish(each.reply, each.data)

    async def on_late(message: Msg) -> None:
        late.put_nowait(message.data)

    subject = f"test.{job}"
    await answering.client.subscribe(subject, cb=answer)
    await answering.client.flush()
    inbox = StoredMessageInbox(asking, on_late)
    first = asyncio.create_task(inbox.ask(subject, b"first", 1))
    await is_asked.wait()
    first.cancel()
    assert [each.data for each in (await inbox.ask(subject, b"second", 1))[0]] == [b"second"]
    assert await late.get() == b"first"
    await asking.close()
    await answering.close()


async def test_no_server_at_the_url_is_a_user_error_without_the_password() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"nats://me:secret@127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(UserError, match="--nats_url") as raised:
            await connect(url, JobId("job"), BusSettings(connect_s=0.3))
    assert "secret" not in str(raised.value)
    assert "127.0.0.1" in str(raised.value)


@pytest.mark.parametrize("url", ["", "nats://:::", "nats://me:secret@127.0.0.1:99999", "nats://[::1", "nats://a:1,,"])
async def test_what_is_no_url_is_a_user_error_without_the_password(url: str) -> None:
    with pytest.raises(UserError, match="is not the URL of a NATS server") as raised:
        await connect(url, JobId("job"), BusSettings(connect_s=0.3))
    assert "secret" not in str(raised.value)


async def test_no_server_at_the_url_is_an_absence_for_a_process_that_is_started_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"nats://me:secret@127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TransientError, match=r"no NATS server answers .* Check --nats_url") as raised:
            await connect(url, JobId("job"), BusSettings(connect_s=0.3, absence_is_final=False))
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


async def test_a_wrong_token_is_a_user_error(own_server: NatsServer, job: JobId) -> None:
    server = NatsServer(own_server.log_path.parent / "guarded", token="t0/k:e%41n@")
    url = server.start()
    try:
        bus = await connect(url, job, SETTINGS)
        assert await bus.log.append(fact(1)) == 1
        await bus.close()
        with pytest.raises(UserError, match=r"(?i)authorization") as raised:
            await connect(url.replace("t0", "wrong"), job, SETTINGS)
        assert "wrong" not in str(raised.value)
    finally:
        server.stop()


async def test_a_full_log_stops_the_job_and_names_the_run_directory(nats_url: str, job: JobId) -> None:
    settings = BusSettings(events_bytes_max=4096, run_directory="/runs/mine")
    bus = await connect(nats_url, job, settings)
    with pytest.raises(PermanentError, match="no space in /runs/mine"):
        for number in range(1, 200):
            await bus.log.append(fact(number))
    assert await bus.log.last_seq() > 0
    await bus.close()


async def test_a_server_that_does_not_answer_because_its_disk_is_full(own_server: NatsServer, job: JobId) -> None:
    # nats-server answers nothing when a write fails with ENOSPC; /proc is a file system without any room.
    bus = await connect(own_server.start(), job, BusSettings(answer_s=0.2, run_directory="/proc"))
    os.kill(own_server.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, own_server.pid, os.WSTOPPED | os.WNOWAIT)  # Until then it may still answer.
    try:
        with pytest.raises(PermanentError, match="no space in /proc"):
            await bus.log.append(fact(1))
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    await bus.close()


async def test_a_message_above_the_brokers_limit(nats_url: str, job: JobId) -> None:
    bus = await connect(nats_url, job, SETTINGS)
    with pytest.raises(PermanentError, match="max_payload"):
        await bus.registers.write("ps-0", bytes(9 << 20), after=0)
    await bus.close()


def test_a_server_that_can_not_start_shows_its_log(own_server: NatsServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PermanentError, match="address already in use"):
            own_server.start(port=taken.getsockname()[1])


def test_a_server_has_a_session_of_its_own_and_ends_when_told(own_server: NatsServer) -> None:
    own_server.start()
    pid = own_server.pid
    assert os.getsid(pid) == pid
    own_server.stop()
    assert not own_server.is_running()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_folder_of_a_server_may_have_any_name(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "rün \u2713")
    server.start()
    assert server.is_running()
    server.stop()


async def test_a_server_is_checked_without_a_trace(nats_url: str, job: JobId) -> None:
    await check_server(nats_url, job)
    connection = await Connection.open(nats_url, job, SETTINGS)
    with pytest.raises(RefusedError, match="stream not found"):
        await connection.api(f"STREAM.INFO.{subjects.events_stream(job)}", {})
    await connection.close()
