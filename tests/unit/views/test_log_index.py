"""The index of an exported log: readers start near what they look for, with the same result as from the beginning."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from tests.histories.long import long_log
from tests.unit.views.recorded import LOGS, Recorded, header_of, recorded

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import Purpose
from elasticdl.views import core_snapshot
from elasticdl.views.files import exported_log, log_index
from elasticdl.views.files.exported_log import ExportedJob, ExportedLog, Header, export
from elasticdl.views.files.log_index import TAIL_BYTES, Block, LogIndex
from elasticdl.views.files.mentions import Mentions
from elasticdl.views.reading import exact, fold
from elasticdl.views.records import task_history
from elasticdl.views.wall_time.fold import wall_time
from elasticdl.views.wall_time.one_task import task_spans


def unchanged(envelope: Envelope) -> Envelope:
    return envelope


async def indexed(name: str, path: Path, monkeypatch: pytest.MonkeyPatch, block: int = 7) -> ExportedLog:
    """A recorded log with small blocks, and a snapshot at each of them."""
    monkeypatch.setattr(log_index, "BLOCK_RECORDS", block)
    monkeypatch.setattr(core_snapshot, "BYTES_PER_RECORD", 1 << 20)
    records = recorded(name)
    await export(Recorded(records), path, header_of(records), unchanged)
    return ExportedLog(path)


@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_the_state_at_any_record_is_that_of_the_whole_fold(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = recorded(name)
    log = await indexed(name, tmp_path / "job.edl", monkeypatch, block=31)
    for until in (*range(1, len(records), 23), len(records)):
        found = await exact(ExportedJob(log, until), until)
        whole = fold(replace(each, envelope=exported_log.without_secrets(each.envelope)) for each in records[:until])
        assert core_snapshot.copy(found.state) == core_snapshot.copy(whole)
        assert found.read_seq == until
    assert (await exact(ExportedJob(log))).snapshot_seq


async def test_records_are_found_by_their_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await indexed("plain", tmp_path / "job.edl", monkeypatch)
    records = recorded("plain")
    assert len(log.index.blocks) == -(-len(records) // 7)
    for after in range(len(records) + 1):
        assert [each.seq for each in log.records(after)] == list(range(after + 1, len(records) + 1))
    assert [each.seq for each in log.numbered({30, 22})] == [22, 30]
    assert list(log.numbered(())) == []


@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_the_blocks_about_a_task_have_its_whole_history(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, records = await indexed(name, tmp_path / "job.edl", monkeypatch), recorded(name)
    for purpose, number in product(Purpose, range(30)):
        task = TaskRef(purpose=purpose, number=number)
        assert list(task_history(log.about(task), task)) == list(task_history(records, task))
        assert task_spans(log.about(task), task) == task_spans(records, task)


async def test_few_blocks_are_about_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "BLOCK_RECORDS", 1500)
    records = list(long_log(4_000, workers=4))
    await export(Recorded(records), tmp_path / "job.edl", header_of(records), unchanged)
    log = ExportedLog(tmp_path / "job.edl")
    task = TaskRef(purpose=Purpose.TRAIN, number=3_000)
    assert [block.mentions.has(task) for block in log.index.blocks] == [False, False, False, False, True, False]
    assert list(task_history(log.about(task), task)) == list(task_history(records, task))


@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_where_the_time_went_is_in_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await indexed(name, tmp_path / "job.edl", monkeypatch)
    assert log.index.known_wall_time() == wall_time(recorded(name))
    found, _ = log.index.wall_time
    assert replace(log.index, wall_time=(found, "another version")).known_wall_time() is None
    assert replace(log.index, wall_time=({**found, "parts": [["?"]]}, log_index.program())).known_wall_time() is None


def test_an_index_of_a_former_version_is_read() -> None:
    values = {"blocks": [(1, 9)], "snapshots": []}
    data = gzip.compress(json.dumps(values).encode())
    index = LogIndex.of_file(io.BytesIO(data + log_index.tail(0)))
    assert index.block_of(1) is index.blocks[0]
    assert index.blocks[0].mentions.has(TaskRef(purpose=Purpose.TRAIN, number=3))
    assert index.known_wall_time() is None


def test_blocks_and_snapshots_of_a_number() -> None:
    index = LogIndex(
        blocks=[Block(first=first, place=place, mentions=Mentions()) for first, place in ((1, 9), (5, 99))],
        snapshots=[(4, b"four"), (8, b"eight")],
    )
    assert [index.block_of(seq) and index.block_of(seq).first for seq in (0, 1, 4, 5, 99)] == [None, 1, 1, 5, 5]  # type: ignore[union-attr]
    assert [index.snapshot_before(until) for until in (3, 4, 7, 8, 0)] == [None, b"four", b"four", b"eight", b"eight"]
    assert LogIndex().snapshot_before(0) is None


async def test_a_file_without_a_readable_index_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, records = tmp_path / "job.edl", recorded("plain")
    whole = (await indexed("plain", path, monkeypatch)).path.read_bytes()
    place = int.from_bytes(whole[-18:-10], "little")
    damaged = whole[: place + 40] + bytes(20) + whole[place + 60 :]
    for data in (whole[:-TAIL_BYTES], whole[:-18] + b"\xff" * 8 + whole[-10:]):
        path.write_bytes(data)
        log = ExportedLog(path)
        assert log.index == LogIndex()
        assert list(log.records()) == records
        assert (await exact(ExportedJob(log))).state.is_final
    for data in (whole[:-1], damaged):
        path.write_bytes(data)
        assert ExportedLog(path).index == LogIndex()
        with pytest.raises(UserError, match="is damaged"):
            list(ExportedLog(path).records())


async def test_any_reader_of_gzip_reads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await indexed("plain", tmp_path / "job.edl", monkeypatch)
    with gzip.open(log.path) as file:
        assert Header.of_line(file.readline(), log.path) == log.header
        assert file.read().endswith(log.index.to_bytes())


async def test_a_snapshot_of_another_version_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await indexed("plain", tmp_path / "job.edl", monkeypatch)
    foreign = [(seq, data[:4] + bytes(16) + data[20:]) for seq, data in log.index.snapshots]
    log.__dict__["index"] = replace(log.index, snapshots=foreign)
    found = await exact(ExportedJob(log))
    assert (found.snapshot_seq, found.state.is_final) == (0, True)


async def test_large_states_are_kept_at_few_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "BLOCK_RECORDS", 2)
    records = recorded("plain")
    path = tmp_path / "job.edl"
    await export(Recorded(records), path, header_of(records), unchanged)
    snapshots = ExportedLog(path).index.snapshots
    assert 1 < len(snapshots) < len(records) / 4
    assert snapshots[-1][0] == len(records)
