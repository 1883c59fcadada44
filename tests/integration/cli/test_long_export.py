"""An export with a child process writes the same file as one without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.histories.logs import append
from tests.histories.long import long_log
from tests.unit.views.recorded import LOGS, header_of, recorded

from elasticdl.cli.commands import exporting
from elasticdl.cli.commands.exporting import change_of, export_log
from elasticdl.master.core import State
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.broker import MemoryBus
from elasticdl.shared.bus.stored_events import StoredEvent
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import ExitCause, JobSubmitted, LogRecord, PodExited
from elasticdl.shared.names import LAUNCHER, JobId
from elasticdl.views import core_snapshot
from elasticdl.views.files.exported_log import ExportedLog, Header, export


@pytest.fixture(autouse=True)
def every_log_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "RECORDS_MIN", 1)


async def on_a_bus(records: Iterable[LogRecord]) -> tuple[MemoryBroker, MemoryBus]:
    broker = MemoryBroker()
    bus: MemoryBus = broker.connect()
    await append(bus.log, (record.envelope for record in records))
    return broker, bus


async def check_equal(bus: MemoryBus, folder: Path, header: Header, anonymized: JobId | None = None) -> None:
    alone, with_child = folder / "alone.edl", folder / "with_child.edl"
    written = await export(bus.log, alone, header, change_of(anonymized))
    assert await export_log(bus.log, with_child, header, anonymized) == written
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


@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_recorded_logs(name: str, tmp_path: Path) -> None:
    records = recorded(name)
    _, bus = await on_a_bus(records)
    await check_equal(bus, tmp_path, header_of(records))


async def test_an_anonymous_log(tmp_path: Path) -> None:
    records = recorded("scaled")
    _, bus = await on_a_bus(records)
    await check_equal(bus, tmp_path, header_of(records), header_of(records).job)


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


async def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    records = recorded("plain")
    _, bus = await on_a_bus(records)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"can't write .*: (Not a directory|File exists)"):
        await export_log(bus.log, tmp_path / "file" / "job.edl", header_of(records), None)


class _SlowLog:
    """A log whose broker does not answer any more after the first record."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
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
    log = _SlowLog(bus)
    exporting_it = asyncio.create_task(export_log(log, tmp_path / "job.edl", header_of(records), None))
    await log.waits.wait()
    exporting_it.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exporting_it
    assert list(tmp_path.iterdir()) == []
