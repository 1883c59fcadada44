"""Workers that are ordered before what they wait for is prepared."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.memory import OomWatch
from elasticdl.cli.local.pods import PodKeeper
from elasticdl.cli.local.processes import Exit, Processes
from elasticdl.cli.local.spawner import Spawner
from elasticdl.shared.messages.commands import StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodStarted
from elasticdl.shared.names import JobId, PodName, Service

WORKER, PS = PodName("worker-0"), PodName("ps-0")
START = StartPod(pod=WORKER, service=Service.WORKER)


class Kettle:
    """Is done when the test says so."""

    def __init__(self) -> None:
        self._done = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        return self._done.is_set()

    async def settle(self) -> None:
        await self._done.wait()

    def boil(self) -> None:
        self._done.set()


class Launcher:
    """A keeper with real processes that end at once, and what it noted."""

    def __init__(self, folder: Path, program: str = sys.executable, code: str = "") -> None:
        run = RunDirectory(folder, JobId("job-0001"))
        run.create()
        self.noted: asyncio.Queue[Event] = asyncio.Queue()
        self.kettle = Kettle()
        self.processes = Processes(Spawner(), self._ended)
        self.keeper = PodKeeper(
            self.processes,
            run,
            lambda pod, service: os.environ,
            lambda event, cause="": self.noted.put_nowait(event),
            lambda service: [program, "-c", code],
            {Service.WORKER: self.kettle},
            OomWatch(folder / "vmstat"),
        )
        self._loop = asyncio.get_running_loop()

    def _ended(self, ended: Exit) -> None:
        self._loop.call_soon_threadsafe(self.keeper.exited, ended)

    async def next(self) -> Event:
        return await asyncio.wait_for(self.noted.get(), DEADLINE_S)


async def test_the_order_is_answered_at_once_and_obeyed_later_and_once(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    await launcher.keeper.obey(START, "3")
    await launcher.keeper.obey(START, "3")
    assert launcher.noted.empty()
    launcher.kettle.boil()
    started, exited = await launcher.next(), await launcher.next()
    assert isinstance(started, PodStarted)
    assert isinstance(exited, PodExited)
    assert started.pid == exited.pid > 0
    assert launcher.noted.empty()


async def test_others_than_workers_do_not_wait(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    await launcher.keeper.obey(StartPod(pod=PS, service=Service.PS), "3")
    assert isinstance(await launcher.next(), PodStarted)
    assert isinstance(await launcher.next(), PodExited)


async def test_a_worker_that_is_stopped_while_it_waits_has_come_and_gone(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    await launcher.keeper.obey(START, "3")
    await launcher.keeper.obey(StopPod(pod=WORKER, reason="the job was stopped"), "4")
    assert await launcher.next() == PodStarted(pod=WORKER, service=Service.WORKER, pid=0)
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert (exited.pid, exited.cause) == (0, ExitCause.FINISHED)
    launcher.kettle.boil()
    await launcher.keeper.obey(START, "5")
    started = await launcher.next()
    assert isinstance(started, PodStarted)
    assert started.pid > 0
    assert isinstance(await launcher.next(), PodExited)


@pytest.mark.parametrize(("kill", "returns"), [(False, 1), (True, 0)])
async def test_who_is_called_back_after_an_ordered_end_is_not_restarted(
    tmp_path: Path, kill: bool, returns: int
) -> None:
    launcher = Launcher(tmp_path, code="import time; time.sleep(600)")
    start = StartPod(pod=PS, service=Service.PS)
    await launcher.keeper.obey(start, "3")
    await launcher.next()
    await launcher.keeper.obey(StopPod(pod=PS, reason="fewer ps", kill=kill), "4")
    assert isinstance(await launcher.next(), PodExited)
    await launcher.keeper.obey(StopPod(pod=PS, reason="again", kill=False), "5")
    await launcher.keeper.obey(start, "6")
    assert (launcher.processes.usage[PS].starts, launcher.processes.usage[PS].returns) == (2, returns)
    launcher.processes.kill_all()


async def test_a_worker_that_can_not_be_started_after_all_has_refused(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, program="/no/such/program")
    await launcher.keeper.obey(START, "3")
    launcher.kettle.boil()
    assert isinstance(await launcher.next(), PodStarted)
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert exited.cause is ExitCause.REFUSED
    assert "/no/such/program can't be started" in exited.log_tail


@pytest.mark.parametrize("is_late", [False, True])
async def test_nobody_is_started_after_the_end(tmp_path: Path, is_late: bool) -> None:
    launcher = Launcher(tmp_path)
    await launcher.keeper.obey(START, "3")
    if is_late:
        await asyncio.sleep(0)  # The task has begun to wait.
    launcher.keeper.close()
    launcher.kettle.boil()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert launcher.noted.empty()


@pytest.mark.parametrize(("kills", "cause"), [(3, ExitCause.OUTSIDE), (4, ExitCause.OWN_FAULT)])
async def test_a_process_that_the_kernel_killed_for_its_memory_is_at_fault(
    tmp_path: Path, kills: int, cause: ExitCause
) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 17\noom_kill 3\n")
    wait = f"while not os.path.exists({str(tmp_path / 'go')!r}): os.sched_yield()"
    launcher = Launcher(tmp_path, code=f"import os, signal\n{wait}\nos.kill(os.getpid(), signal.SIGKILL)")
    await launcher.keeper.obey(StartPod(pod=PS, service=Service.PS), "3")
    await launcher.next()
    vmstat.write_text(f"pgfault 18\noom_kill {kills}\n")
    (tmp_path / "go").touch()
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert (exited.cause, exited.exit_code) == (cause, -9)
    assert ("memory ran out" in exited.log_tail) == (cause is ExitCause.OWN_FAULT)
