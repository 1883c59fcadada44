"""The event files that a master writes while its job runs."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

from tests.deadline import DEADLINE_S
from tests.unit.cli.job_log import SPEC, Log, finish, half_done

from elasticdl.master.tensorboard import event_files
from elasticdl.master.tensorboard.live import LiveEventFiles, write_event_files
from elasticdl.shared.bus.memory import MemoryBroker, MemoryBus
from elasticdl.shared.messages.events import JobSubmitted, LogRecord
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.names import JobId, PodName, Service
from elasticdl.shared.storage import open_store, to_uri
from elasticdl.views.curves import points


async def append(bus: MemoryBus, records: list[LogRecord], folder: Path | None) -> None:
    """Append records to a log; the job writes event files into a folder, or none."""
    for record in records:
        envelope = record.envelope
        if isinstance(envelope.event, JobSubmitted) and folder:
            spec = replace(envelope.event.spec, tensorboard_log_dir=to_uri(folder))
            envelope = replace(envelope, event=JobSubmitted(spec=spec))
        await bus.log.append(envelope)


def expected(records: list[LogRecord], folder: Path) -> bytes:
    """What ``elasticdl tensorboard`` writes."""
    uri = to_uri(folder)
    event_files.write(open_store(uri), uri, SPEC.job, list(points(records)), SPEC.created_s)
    (file,) = (folder / "train").iterdir()
    content = file.read_bytes()
    shutil.rmtree(folder)
    return content


def complete() -> Log:
    log = half_done()
    finish(log)
    return log


async def written(folder: Path, content: bytes) -> None:
    """Wait until the only file has a content."""
    async with asyncio.timeout(DEADLINE_S):
        while [file.read_bytes() for file in folder.rglob("events.*")] != [content]:
            await asyncio.sleep(0)


async def test_the_files_grow_with_the_job_and_a_successor_continues_them(tmp_path: Path) -> None:
    folder, whole = tmp_path / "curves", complete().records
    half = half_done().records
    bus = MemoryBroker().connect()
    await append(bus, half, folder)
    first = LiveEventFiles(bus.log, write_every_s=0.01)
    first.begin()
    await written(folder, expected(half, tmp_path / "other"))
    first.cancel()  # Its master is killed.
    await append(bus, whole[len(half) :], folder)
    second = LiveEventFiles(bus.log)
    second.begin()
    await second.finish()
    await written(folder, expected(whole, tmp_path / "other"))
    third = LiveEventFiles(bus.log)
    third.begin()
    await third.finish()
    await written(folder, expected(whole, tmp_path / "other"))


async def test_jobs_with_the_same_log_directory_have_runs_of_their_own(tmp_path: Path) -> None:
    for job in ("digits-1", "digits-2"):
        bus = MemoryBroker().connect()
        records = complete().records
        event = records[0].envelope.event
        assert isinstance(event, JobSubmitted)
        submitted = replace(records[0].envelope, event=JobSubmitted(spec=replace(event.spec, job=JobId(job))))
        await append(bus, [replace(records[0], envelope=submitted), *records[1:]], tmp_path)
        await write_event_files(bus.log)
    files = [file.relative_to(tmp_path).parent for file in tmp_path.rglob("events.*")]
    assert sorted(map(str, files)) == ["digits-1/train", "digits-2/train"]


async def test_a_measurement_after_the_master_has_exited_is_added(tmp_path: Path) -> None:
    folder, records = tmp_path / "curves", complete().records
    bus = MemoryBroker().connect()
    await append(bus, records, folder)
    files = LiveEventFiles(bus.log)
    files.begin()
    await files.finish()
    files.cancel()
    log = complete()
    log.add(Service.LAUNCHER, PodName("launcher"), RunMeasured(started_s=1.0, batches_absorbed=4, batches_computed=5))
    await append(bus, log.records[len(records) :], folder)
    await write_event_files(bus.log)
    await written(folder, expected(log.records, tmp_path / "other"))


async def test_a_folder_that_can_not_be_written_does_not_end_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    bus = MemoryBroker().connect()
    await append(bus, complete().records, tmp_path / "file" / "folder")
    files = LiveEventFiles(bus.log)
    files.begin()
    await files.finish()
    assert (tmp_path / "file").read_bytes() == b""


async def test_a_job_without_the_flag_has_no_files(tmp_path: Path) -> None:
    bus = MemoryBroker().connect()
    await append(bus, complete().records, None)
    files = LiveEventFiles(bus.log)
    files.begin()
    await files.finish()
    files.cancel()
    assert not list(tmp_path.iterdir())
