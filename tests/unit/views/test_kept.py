"""Kept results are those of the same log, and a log that has changed has none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.histories.long import long_log
from tests.unit.views.recorded import LOGS, Recorded, header_of, job_of, recorded

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope, LogRecord, TaskFinished
from elasticdl.shared.names import Purpose
from elasticdl.views.files import kept
from elasticdl.views.files.exported_log import ExportedLog, export
from elasticdl.views.records import one_line, task_history
from elasticdl.views.task_times import TIME_FIELDS, task_times
from elasticdl.views.wall_time.fold import FIELDS, wall_time


def exported(records: list[LogRecord], path: Path) -> ExportedLog:
    asyncio.run(export(Recorded(records), path, header_of(records), lambda envelope: envelope))
    return ExportedLog(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "RECORDS_MIN", 10)
    return tmp_path / "kept"


def results_of(folder: Path, records: list[LogRecord], log: ExportedLog | None = None) -> kept.KeptResults:
    return asyncio.run(kept.KeptResults.of(folder, log or Recorded(records), job_of(records)))


def test_a_result_is_found_again_until_the_log_grows(folder: Path) -> None:
    records = recorded("plain")
    results_of(folder, records[:50]).write("why", b"50")
    assert results_of(folder, records[:50]).read("why", bytes) == b"50"
    assert results_of(folder, records[:51]).read("why", bytes) is None
    assert results_of(folder, records[:50]).read("state", bytes) is None


def test_files_are_told_apart_by_what_is_in_them(folder: Path, tmp_path: Path) -> None:
    records = recorded("plain")
    log, copy = exported(records, tmp_path / "a.edl"), exported(records, tmp_path / "b.edl")
    later = replace(records[-1], envelope=replace(records[-1].envelope, time_s=records[-1].envelope.time_s + 1))
    other = exported([*records[:-1], later], tmp_path / "c.edl")
    results_of(folder, records, log).write("why", b"1")
    assert results_of(folder, records, copy).read("why", bytes) == b"1"
    assert results_of(folder, records, other).read("why", bytes) is None


@pytest.mark.parametrize("data", [b"", bytes(100), b"{}", b"[[1, 2]]", b'"text"'])
def test_a_damaged_result_is_not_there(folder: Path, data: bytes) -> None:
    results = results_of(folder, recorded("plain"))
    results.write("why", data)
    assert results.read("why", kept.wall_time_of_bytes) is None


def test_short_logs_are_not_kept(tmp_path: Path) -> None:
    records = recorded("plain")
    results_of(tmp_path / "kept", records).write("why", b"1")
    assert not (tmp_path / "kept").exists()


def test_the_files_used_last_remain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "FILES_MAX", 3)
    results = results_of(folder, recorded("plain"))
    for number in range(5):
        results.write(f"r{number}", b"x")
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_results_survive_a_file(path: Path) -> None:
    records = recorded(path.stem)
    found, times = wall_time(records), task_times(records)
    texts = {seq: one_line(records[seq - 1]) for part in found.parts for seq, _ in part.evidence}
    assert kept.wall_time_of_bytes(kept.wall_time_to_bytes(found, texts)) == (found, texts)
    assert kept.task_times_of_bytes(kept.task_times_to_bytes(times)) == times


@pytest.mark.parametrize("name", ["ps-killed", "worker-killed", "evaluation"])
def test_the_filter_of_encoded_records_loses_no_history(name: str, tmp_path: Path) -> None:
    records = recorded(name)
    log = exported(records, tmp_path / "job.edl")
    for purpose in (Purpose.TRAIN, Purpose.EVALUATE):
        for number in range(6):
            ref = TaskRef(purpose=purpose, number=number)
            filtered = list(task_history(log.about(ref), ref))
            assert filtered == list(task_history(records, ref))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_folds_need_no_other_fields_than_they_name(path: Path, tmp_path: Path) -> None:
    records = recorded(path.stem)
    log = exported(records, tmp_path / "job.edl")
    assert wall_time(log.records(decode=codec.envelope_decoder(FIELDS))) == wall_time(records)
    assert task_times(log.records(decode=codec.envelope_decoder(TIME_FIELDS))) == task_times(records)


def test_a_field_that_is_not_decoded_can_not_be_read() -> None:
    record = next(each for each in recorded("plain") if isinstance(each.envelope.event, TaskFinished))
    decode = codec.envelope_decoder({Envelope: ("event",), TaskFinished: ("batches",)})
    found = decode(codec.encode_envelope(record.envelope))
    assert isinstance(found.event, TaskFinished)
    assert found.event.batches == record.envelope.event.batches  # type: ignore[union-attr]
    for read in (lambda: found.name, lambda: found.event.loss_sum):
        with pytest.raises(AttributeError):
            read()


def test_a_long_log_folds_and_names_its_slow_worker(tmp_path: Path) -> None:
    records = list(long_log(400, workers=4))
    found = wall_time(records)
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.wall_s)
    assert "slow_worker" in {part.cause.value for part in found.parts}
    assert len(task_times(records)) == 400
    log = exported(records, tmp_path / "long.edl")
    assert [each.seq for each in log.numbered({3, 700})] == [3, 700]
