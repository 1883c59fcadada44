"""A fleet at any decision of its log, and a log that is read while it is written."""

from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.histories.logs import FOLDER

from elasticdl.controller.core import Job
from elasticdl.controller.core.job import Curve, Group
from elasticdl.controller.history.log_file import GrowingLog, LogFile, read_log
from elasticdl.controller.history.overview import FleetHistory, overview, useful
from elasticdl.controller.history.replay import fold
from elasticdl.shared.errors import UserError

FLEETS = sorted((FOLDER / "fleets").iterdir())
JOB = Job(name="a", master=Group(request={}), ps=Group(request={}), worker=Group(request={"cpu": 1000}))


@pytest.mark.parametrize("path", FLEETS, ids=lambda path: path.stem)
def test_samples_are_what_a_fold_of_the_log_says(path: Path) -> None:
    records = list(read_log(path)[1])
    history = FleetHistory(interval=10)
    for record in records:
        history.add(record)
    for number in (1, 9, 10, 11, len(records) // 2, len(records)):
        found, sample = overview(history.at(number)), history.samples[number - 1]
        assert found == overview(fold(records[:number]))
        assert (
            (found["number"], found["time_s"]) == (sample.number, sample.time_s) == (number, records[number - 1].time_s)
        )
        (cpu,) = (row for row in found["resources"] if row[0] == "cpu")
        _, allocatable, jobs, others, work = cpu
        assert sample.requested == pytest.approx((jobs + others) / allocatable)
        assert sample.useful == pytest.approx(work / allocatable, abs=1e-3)
        assert sample.useful <= sample.requested <= 1.0
        assert sample.waiting == sum(job["waiting"] for job in found["jobs"])
    assert history.at(10**6).number == len(records)
    assert FleetHistory().at(3).number == 0


def test_useful_work_follows_the_curve_of_a_job() -> None:
    slowing = replace(JOB, curve=Curve(((1, 100.0), (4, 200.0))))
    assert useful(slowing, 4) == 2.0
    assert useful(JOB, 4) == 4.0
    assert useful(None, 2) == 2


def test_a_log_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "fleet.log"
    header, *lines = gzip.decompress(FLEETS[-1].read_bytes()).decode().splitlines(keepends=True)
    recorded = list(read_log(FLEETS[-1])[1])
    writing = LogFile(path)
    reading = GrowingLog(path)
    assert reading.read() == ([], False)
    writing.append(header)
    found = []
    for line in lines:
        writing.append(line)
        records, is_other = reading.read()
        assert len(records) == 1 and not is_other
        found += records
    assert found == recorded
    assert reading.read() == ([], False)
    writing.close()
    os.replace(path, tmp_path / "fleet.log.1")
    assert reading.read() == ([], False), "the next one has not begun"
    following = LogFile(path)
    following.append(header + lines[0])
    assert reading.read() == (recorded[:1], True)
    following.close()


@pytest.mark.parametrize("content", [b"no log", gzip.compress(b"{}\n", mtime=0)], ids=["text", "gzip"])
def test_another_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    reading = GrowingLog(path)
    with pytest.raises(UserError, match="other is no log of a fleet"):
        reading.read()
    with pytest.raises(UserError, match="can't be read"):
        GrowingLog(tmp_path / "absent").read()


def test_a_damaged_log_stays_so_until_another_file_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "fleet.log"
    header, line, *_ = gzip.decompress(FLEETS[-1].read_bytes()).decode().splitlines(keepends=True)
    writing = LogFile(path)
    writing.append(header + "{}\n")
    reading = GrowingLog(path)
    for _ in range(2):
        with pytest.raises(UserError):
            reading.read()
        writing.append(line)
    writing.close()
    shorter = LogFile(tmp_path / "shorter")
    shorter.append(header + line)
    os.replace(tmp_path / "shorter", path)
    records, is_other = reading.read()
    assert (len(records), is_other) == (1, True)
    shorter.close()
