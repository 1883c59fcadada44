"""What every ``JobHandle`` has to do, for a job in memory and one in a run directory, by the commands that use it."""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.contract.jobs.memory_job import MemoryJob
from tests.histories.logs import append
from tests.unit.cli.job_log import SPEC, Log, finish, half_done

from elasticdl.cli.commands import inspect, jobs
from elasticdl.cli.commands.events import EventQuery, events
from elasticdl.cli.commands.logs import logs
from elasticdl.cli.commands.tensorboard import tensorboard
from elasticdl.cli.jobs.handle import JobHandle
from elasticdl.cli.jobs.local_handle import LocalJobHandle
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.reading import read_present
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.events import Event, LogRecord, ScaleRequested


class Case(ABC):
    """A running job with one implementation of the handle."""

    job: JobHandle
    _filled = 0
    """Records of the log that the job has."""
    _master_seq = 0

    @abstractmethod
    def log_line(self, pod: str, line: str) -> None:
        """A process logs a line."""

    @abstractmethod
    def end(self) -> None:
        """Nothing runs the job any more."""

    def fill(self, log: Log) -> None:
        asyncio.run(self._append(log.records))

    def last_event(self) -> Event:
        return asyncio.run(self._records())[-1].envelope.event

    async def _append(self, records: list[LogRecord]) -> None:
        async with self.job.open() as bus:
            new = [record.envelope for record in records[self._filled :]]
            self._master_seq = await append(bus.log, new, after=self._master_seq)
            self._filled = len(records)

    async def _records(self) -> list[LogRecord]:
        async with self.job.open() as bus:
            return await read_present(bus.log)


class MemoryCase(Case):
    def __init__(self) -> None:
        self._memory = MemoryJob(MemoryBroker())
        self.job = self._memory

    def log_line(self, pod: str, line: str) -> None:
        self._memory.logs.lines.setdefault(pod, []).append(line)

    def end(self) -> None:
        self._memory.is_running = False


class LocalCase(Case):
    """The tests' process is the launcher."""

    def __init__(self, folder: Path, nats_url: str) -> None:
        self._run = RunDirectory(folder, SPEC.job)
        self._run.create()
        record = JobRecord(
            job=SPEC.job, created_s=1.0, state="training", nats_url=nats_url, own_nats=False, launcher_pid=os.getpid()
        )
        self._run.write(record)
        self._lock = ExitStack()
        self._lock.enter_context(self._run.lock())
        self.job = LocalJobHandle(self._run)

    def log_line(self, pod: str, line: str) -> None:
        with self._run.log(pod).open("a") as log:
            log.write(f"{line}\n")

    def end(self) -> None:
        self._lock.close()


@pytest.fixture(params=["memory", "local"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    if request.param == "memory":
        yield MemoryCase()
        return
    server = NatsServer(tmp_path / "nats")
    local = LocalCase(tmp_path, server.start())
    yield local
    local.end()
    server.stop()


def test_the_log_tells_status_and_report(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    log = half_done()
    case.fill(log)
    inspect.status(case.job, as_json=True, evaluations=0)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["job"], facts["state"], facts["alive"]) == (SPEC.job, "training", True)
    finish(log)
    case.fill(log)
    inspect.report(case.job, as_json=True)
    assert json.loads(capsys.readouterr().out)["history"]["epochs"][0]["batches"] == 4
    events(case.job, EventQuery(), follow=False)
    assert len(capsys.readouterr().out.splitlines()) >= len(log.records)


def test_tensorboard_files_are_written_from_the_log(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "curves"
    with pytest.raises(UserError, match="holds no job"):
        tensorboard(case.job, str(folder))
    case.fill(half_done())
    tensorboard(case.job, str(folder))
    (file,) = (folder / SPEC.job / "train").iterdir()
    assert file.name.endswith(SPEC.job)
    assert "Wrote 3 points to" in capsys.readouterr().out
    case.end()
    tensorboard(case.job, str(folder))
    assert "is up to date (3 points)" in capsys.readouterr().out


def test_requests_are_events_on_the_log(case: Case) -> None:
    case.fill(half_done())
    jobs.scale(case.job, workers=3, ps=0)
    assert case.last_event() == ScaleRequested(workers=3)
    case.end()
    with pytest.raises(UserError, match=r"is not running \(interrupted\)"):
        jobs.scale(case.job, workers=2, ps=0)
    with pytest.raises(UserError, match=r"is not running \(interrupted\)"):
        jobs.stop(case.job)
    assert case.last_event() == ScaleRequested(workers=3)


def test_a_job_whose_log_is_out_of_reach_is_stopped_all_the_same() -> None:
    job = MemoryJob(MemoryBroker())
    job.is_reachable = False
    jobs.stop(job)
    assert job.is_terminated


def test_the_status_of_a_job_that_has_begun_says_why_no_master_runs(capsys: pytest.CaptureFixture[str]) -> None:
    case = MemoryCase()
    case.fill(half_done())
    assert isinstance(case.job, MemoryJob)
    case.job.waiting = "the master ran out of memory (limit 256Mi)"
    inspect.status(case.job, as_json=False, evaluations=0)
    assert case.job.waiting in capsys.readouterr().out.splitlines()


def test_logs_end_with_their_last_lines(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("one", "two", "three"):
        case.log_line("master", line)
    case.log_line("worker-0", "here")
    logs(case.job, ["master"], lines=2, follow=False)
    assert capsys.readouterr().out.splitlines() == ["master | two", "master | three"]
    found, new = case.job.logs.read([], 1)
    assert list(found) == [("master", "three"), ("worker-0", "here")]
    case.log_line("worker-0", "more")
    assert list(new(last=True)) == [("worker-0", "more")]
    with pytest.raises(UserError, match="ps-9 of job digits-abcdef has no log"):
        logs(case.job, ["ps-9"], lines=1, follow=False)
