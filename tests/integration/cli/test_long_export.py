"""An export with a child process writes the same file as one without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.histories.logs import append
from tests.histories.long import long_log
from tests.histories.snapshots import keep_snapshots, state_at
from tests.unit.views.recorded import LOGS, header_of, recorded

from elasticdl.cli.commands import exporting
from elasticdl.cli.commands.exporting import change_of, export_log
from elasticdl.master.core import State
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.broker import MemoryBus
from elasticdl.shared.bus.stored_events import StoredEvent
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import ReaderSpec
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import ExitCause, JobResumed, JobSubmitted, LogRecord, PodExited
from elasticdl.shared.names import LAUNCHER, JobId
from elasticdl.views import core_snapshot
from elasticdl.views.files.exported_log import ExportedJob, ExportedLog, Header, export
from elasticdl.views.reading import exact, fold

STRETCH = 31
SECRET = "hush-hush"


@pytest.fixture(autouse=True)
def every_log_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "RECORDS_MIN", 1)


@pytest.fixture
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots of the master are too few for any log."""
    monkeypatch.setattr(exporting, "FOLDED_MAX", 0)


async def on_a_bus(records: Iterable[LogRecord]) -> tuple[MemoryBroker, MemoryBus]:
    broker = MemoryBroker()
    bus: MemoryBus = broker.connect()
    await append(bus.log, (record.envelope for record in records))
    return broker, bus


async def check_equal(bus: MemoryBus, folder: Path, header: Header, anonymized: JobId | None = None) -> None:
    alone, with_child = folder / "alone.edl", folder / "with_child.edl"
    written = await export(bus.log, alone, header, change_of(anonymized))
    assert await export_log(bus, with_child, header, anonymized) == written
    one, other = ExportedLog(alone), ExportedLog(with_child)
    places = [each.place for each in one.index.blocks]
    assert [each.place for each in other.index.blocks] == places
    end = places[-1] + 1
    assert with_child.read_bytes()[:end] == alone.read_bytes()[:end]
    assert list(other.records()) == list(one.records())
    assert [each.mentions.to_plain() for each in other.index.blocks] == [
        each.mentions.to_plain() for each in one.index.blocks
    ]
    assert other.index.wall_time == one.index.wall_time
    assert states(other) == states(one)
    assert sorted(folder.iterdir()) == [alone, with_child]


def states(log: ExportedLog) -> list[tuple[int, State]]:
    """The core snapshots. Their bytes have the order of protobuf's maps, which is another one in each process."""
    submitted = next(log.records()).envelope.event
    assert isinstance(submitted, JobSubmitted)
    return [(seq, core_snapshot.decode(data, submitted.spec)) for seq, data in log.index.snapshots]


@pytest.mark.usefixtures("few_are_kept")
@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_recorded_logs(name: str, tmp_path: Path) -> None:
    records = recorded(name)
    _, bus = await on_a_bus(records)
    await check_equal(bus, tmp_path, header_of(records))


async def test_an_anonymous_log(tmp_path: Path) -> None:
    records = recorded("scaled")
    _, bus = await on_a_bus(records)
    await check_equal(bus, tmp_path, header_of(records), header_of(records).job)


@pytest.mark.usefixtures("few_are_kept")
async def test_a_log_of_several_blocks(tmp_path: Path) -> None:
    records = list(long_log(9_000, workers=3))
    _, bus = await on_a_bus(records)
    await check_equal(bus, tmp_path, header_of(records))


async def test_records_that_can_not_be_read(tmp_path: Path) -> None:
    """One has no fields that this version knows, another one a value that it does not know."""
    records = recorded("plain")
    broker, bus = await on_a_bus(records)
    launcher = records[0].envelope.incarnation
    broker.records.append(StoredEvent(LAUNCHER, f"{launcher}.900", b"\xff\xff"))
    exited = next(each.envelope for each in records if isinstance(each.envelope.event, PodExited))
    message: Any = codec.ENVELOPE.message.FromString(codec.encode_envelope(exited))
    message.pod_exited.cause = 1 + len(ExitCause)
    for field in ("name", "incarnation", "number"):
        message.ClearField(field)
    broker.records.append(StoredEvent(LAUNCHER, f"{launcher}.901", message.SerializeToString()))
    await check_equal(bus, tmp_path, header_of(records))


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_snapshot, "STRETCH_RECORDS", STRETCH)
    monkeypatch.setattr(core_snapshot, "BYTES_PER_RECORD", 1 << 20)


def check_snapshots(log: ExportedLog) -> list[int]:
    """Compare each core snapshot with the fold of the file; returns where they are."""
    records = list(log.records())
    for seq, state in states(log):
        assert max(state.seq, state.master_seq) <= seq <= len(records)
        assert core_snapshot.copy(state) == core_snapshot.copy(state_at(records, state))
    return [seq for seq, _ in log.index.snapshots]


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("has_secrets", [False, True])
@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_the_snapshots_of_the_master_say_what_the_fold_of_the_file_says(
    name: str, has_secrets: bool, tmp_path: Path
) -> None:
    records = [_with_secrets(each) if has_secrets else each for each in recorded(name)]
    _, bus = await on_a_bus(records)
    await keep_snapshots(bus.core_snapshots, records, 3)
    await export_log(bus, tmp_path / "job.edl", header_of(records), None)
    log = ExportedLog(tmp_path / "job.edl")
    places = check_snapshots(log)
    assert len(places) >= len(records) // STRETCH
    assert places[-1] == len(records)
    assert SECRET not in str(list(log.records()))
    assert SECRET not in str(states(log))
    for until in range(2 * STRETCH, len(records), STRETCH):
        found = await exact(ExportedJob(log, until), until)
        assert core_snapshot.copy(found.state) == core_snapshot.copy(fold(log.records(until=until)))
        assert found.snapshot_seq


def _with_secrets(record: LogRecord) -> LogRecord:
    """A record that tells the processes something in secret, if such a record may."""
    event = record.envelope.event
    address = f"s3://user:{SECRET}@host/folder"
    if isinstance(event, JobSubmitted):
        spec = event.spec
        reader = ReaderSpec(function="read", params={"password": SECRET}, origin=address, records_per_task=1)
        data = replace(spec.data, reader=reader)
        spec = replace(spec, envs={"TOKEN": SECRET}, storage=address, output=address, data=data)
        event = replace(event, spec=spec)
    elif isinstance(event, JobResumed):
        event = replace(event, output=address)
    return replace(record, envelope=replace(record.envelope, event=event))


@pytest.mark.usefixtures("short_stretches")
async def test_snapshots_of_a_state_that_follows_after_a_record_that_can_not_be_read_are_left_out(
    tmp_path: Path,
) -> None:
    """The master could read it: its payload was lost later."""
    records = recorded("plain")
    broker, bus = await on_a_bus(records)
    await keep_snapshots(bus.core_snapshots, records, 3)
    broken = 2 * STRETCH + 7
    broker.records.data[broken - 1] = broker.records.data[broken - 1]._replace(data=b"\xff\xff")
    await export_log(bus, tmp_path / "job.edl", header_of(records), None)
    places = check_snapshots(ExportedLog(tmp_path / "job.edl"))
    assert places
    assert max(places) < broken


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("missing", ["schema", "gap"])
async def test_a_log_without_enough_usable_snapshots_is_folded(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "FOLDED_MAX", 2 * STRETCH)
    records = recorded("scaled")
    _, bus = await on_a_bus(records)
    await keep_snapshots(bus.core_snapshots, records, 3)
    for name in core_snapshot.kept_names(len(records)):
        present = await bus.core_snapshots.read(name)
        if present and (missing == "schema" or name in ("master-2", "master-3")):
            useless = present.value[:4] + bytes(16) + present.value[20:]
            await bus.core_snapshots.write(name, useless, after=present.seq)
    await check_equal(bus, tmp_path, header_of(records))


async def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    records = recorded("plain")
    _, bus = await on_a_bus(records)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"can't write .*: (Not a directory|File exists)"):
        await export_log(bus, tmp_path / "file" / "job.edl", header_of(records), None)


class _SlowJob:
    """A job whose broker does not answer any more after the first record of the log."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.log = self
        self.core_snapshots = bus.core_snapshots
        self.waits = asyncio.Event()

    async def last_seq(self) -> int:
        return await self._bus.log.last_seq()

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        async for record in self._bus.log.read(after, decode, until):
            yield record
            self.waits.set()
            await asyncio.Event().wait()


async def test_an_interrupted_export_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    records = recorded("plain")
    _, bus = await on_a_bus(records)
    job = _SlowJob(bus)
    exporting_it = asyncio.create_task(export_log(job, tmp_path / "job.edl", header_of(records), None))
    await job.waits.wait()
    exporting_it.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exporting_it
    assert list(tmp_path.iterdir()) == []
