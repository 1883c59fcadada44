"""``elasticdl clean --namespace`` on a real nats-server: which event logs it deletes, and which never."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.contract.bus.conftest import SETTINGS
from tests.histories.logs import FOLDER, append, read_log

from elasticdl.cli.commands.clean import CleanSettings
from elasticdl.cli.kubernetes.ended_jobs.clean import clean_logs
from elasticdl.shared.bus import Bus, nats_bus
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import JobId

OLD = CleanSettings(older_than_days=0.0)
FINISHED, PRESENT, BROKEN, FOLLOWED = (JobId(f"{name}-1") for name in ("finished", "present", "broken", "followed"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    yield server.start()
    server.stop()


@pytest.fixture
def url(server: str) -> str:
    """A server with the logs of three jobs: two have succeeded, and one has ended halfway."""
    records = [record.envelope for record in read_log(FOLDER / "plain.log")]

    async def write() -> None:
        for job in await nats_bus.stored_jobs(server):
            await nats_bus.remove_job(server, job)
        for job in (FINISHED, PRESENT, BROKEN):
            bus = await nats_bus.connect(server, job, SETTINGS)
            await append(bus.log, records[: len(records) // 2 if job == BROKEN else None])
            await bus.close()

    asyncio.run(write())
    return server


def left(url: str) -> set[JobId]:
    return set(asyncio.run(nats_bus.stored_jobs(url)))


def clean(url: str, settings: CleanSettings, *jobs: str) -> None:
    clean_logs(url, {PRESENT}, jobs, settings, "namespace team")


def test_only_logs_of_finished_jobs_without_objects_are_deleted(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    clean(url, CleanSettings())
    assert capsys.readouterr().out == "No event logs to delete in namespace team\n"  # They are younger than a week.
    clean(url, CleanSettings(older_than_days=0.0, dry_run=True))
    assert f"Would delete the event log of {FINISHED} (succeeded" in capsys.readouterr().out
    assert left(url) == {FINISHED, PRESENT, BROKEN}
    clean(url, OLD)
    assert left(url) == {PRESENT, BROKEN}


def test_all_deletes_others_after_a_question(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = CleanSettings(older_than_days=0.0, unfinished=True)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UserError, match=r"(?s)would delete 2 event logs.* --yes"):
        clean(url, everything)
    assert left(url) == {FINISHED, PRESENT, BROKEN}
    clean(url, CleanSettings(older_than_days=0.0, unfinished=True, confirmed=True))
    assert left(url) == {PRESENT}


def test_a_log_that_is_named_is_deleted_at_any_age(url: str) -> None:
    with pytest.raises(UserError, match=r"(?s)the Kubernetes Job of present-1 exists.*kubectl delete job present-1"):
        clean(url, CleanSettings(unfinished=True, confirmed=True), PRESENT)
    with pytest.raises(UserError, match=r"(?s)broken-1 \(interrupted\) did not finish.*--all"):
        clean(url, CleanSettings(), "broken")
    with pytest.raises(UserError, match="no event log of a job 'none-such' in namespace team"):
        clean(url, CleanSettings(), "none-such")
    clean(url, CleanSettings(unfinished=True, confirmed=True), "broken")
    clean(url, CleanSettings(), FINISHED)
    assert left(url) == {PRESENT}


def test_the_log_of_a_running_master_stays(url: str) -> None:
    """Its Job may be in another namespace that uses the same server."""

    @asynccontextmanager
    async def following() -> AsyncIterator[None]:
        bus = await nats_bus.connect(url, FOLLOWED, SETTINGS)

        async def read() -> None:
            async for _ in bus.log.read(0):
                pass

        reading = asyncio.create_task(read())
        while not next(log for log in await nats_bus.stored_logs(url) if log.job == FOLLOWED).is_followed:
            pass
        yield
        reading.cancel()
        await bus.close()

    async def check() -> None:
        forced = CleanSettings(older_than_days=0.0, unfinished=True, confirmed=True)
        async with following():
            await asyncio.to_thread(clean, url, forced)
            with pytest.raises(UserError, match="a process follows the event log of followed-1"):
                await asyncio.to_thread(clean, url, forced, FOLLOWED)
            assert set(await nats_bus.stored_jobs(url)) == {PRESENT, FOLLOWED}
        await asyncio.to_thread(clean, url, forced, FOLLOWED)
        assert set(await nats_bus.stored_jobs(url)) == {PRESENT}

    asyncio.run(check())


def test_the_log_of_a_busy_master_stays(url: str) -> None:
    """It asks for what has arrived now and then, and waits for nothing in between."""
    first = next(iter(read_log(FOLDER / "plain.log"))).envelope

    async def write(bus: Bus) -> None:
        for number in itertools.count(2):
            await bus.log.append_all([replace(first, number=16 * number + place) for place in range(16)])

    async def read(bus: Bus) -> None:
        async for record in bus.log.read(0):
            if record.seq == 1000:
                is_busy.set()

    is_busy = asyncio.Event()

    async def check() -> None:
        writer = await nats_bus.connect(url, FOLLOWED, SETTINGS)
        reader = await nats_bus.connect(url, FOLLOWED, replace(SETTINGS, gather_s=0.05))
        tasks = [asyncio.create_task(write(writer)), asyncio.create_task(read(reader))]
        await is_busy.wait()
        found = [next(log for log in await nats_bus.stored_logs(url) if log.job == FOLLOWED) for _ in range(30)]
        for task in tasks:
            task.cancel()
        for bus in (writer, reader):
            await bus.close()
        assert all(log.is_followed for log in found), [log.is_followed for log in found]

    asyncio.run(check())


def test_all_streams_of_a_job_are_deleted(url: str) -> None:
    """A job of the same id begins with nothing."""

    async def records() -> int:
        await nats_bus.remove_job(url, FINISHED)
        await nats_bus.remove_job(url, FINISHED)  # A removal can be repeated.
        bus = await nats_bus.connect(url, FINISHED, SETTINGS)
        try:
            return await bus.log.last_seq()
        finally:
            await bus.close()

    assert asyncio.run(records()) == 0
