"""Pods that are ordered before their fork server is ready, and exits of pods."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.pods import LocalPods
from elasticdl.cli.local.processes.children import ChildProcesses, Exit
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.messages.commands import StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodPending, PodStarted
from elasticdl.shared.names import JobId, PodInstance, PodName, Service
from elasticdl.shared.pods.supervisor import PodSupervisor
from elasticdl.shared.process.oom_watch import OomWatch

WORKER, PS = PodName("worker-0"), PodName("ps-0")
START = StartPod(pod=WORKER, service=Service.WORKER)
NEVER_STARTED = PodInstance("never started 3")


class ManualPreparation:
    """Finishes when the test says so."""

    def __init__(self) -> None:
        self._done = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        return self._done.is_set()

    async def settle(self) -> None:
        await self._done.wait()

    def finish(self) -> None:
        self._done.set()


class Launcher:
    """Local pods with real processes, and the events that they published."""

    def __init__(self, folder: Path, program: str = sys.executable, code: str = "") -> None:
        run = RunDirectory(folder, JobId("job-0001"))
        run.create()
        self.published: asyncio.Queue[Event] = asyncio.Queue()
        self.preparation = ManualPreparation()
        self.processes = ChildProcesses(Spawner(), self._ended)
        self.local = LocalPods(
            self.processes,
            run,
            environment=lambda pod, service: os.environ,
            command=lambda service: [program, "-c", code],
            preparations={Service.WORKER: self.preparation},
            oom_watch=OomWatch(folder / "vmstat"),
        )
        self.pods = PodSupervisor(self.local, lambda event, cause="": self.published.put_nowait(event))
        self._watching = asyncio.create_task(self.pods.run())
        self._loop = asyncio.get_running_loop()

    def _ended(self, ended: Exit) -> None:
        self._loop.call_soon_threadsafe(self.local.on_exit, ended)

    async def next(self) -> Event:
        return await asyncio.wait_for(self.published.get(), DEADLINE_S)


async def test_a_start_order_is_answered_at_once_and_executed_once_prepared(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    await launcher.pods.execute(START, "3")
    await launcher.pods.execute(START, "3")
    assert isinstance(await launcher.next(), PodPending)
    assert launcher.published.empty()
    launcher.preparation.finish()
    started, exited = await launcher.next(), await launcher.next()
    assert isinstance(started, PodStarted)
    assert isinstance(exited, PodExited)
    assert started.instance == exited.instance != NEVER_STARTED
    assert launcher.published.empty()


async def test_services_without_a_preparation_do_not_wait(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    await launcher.pods.execute(StartPod(pod=PS, service=Service.PS), "3")
    assert isinstance(await launcher.next(), PodStarted)
    assert isinstance(await launcher.next(), PodExited)


async def test_a_worker_that_is_stopped_while_it_waits_is_reported_as_started_and_exited(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    await launcher.pods.execute(START, "3")
    await launcher.pods.execute(StopPod(pod=WORKER, reason="the job was stopped"), "4")
    assert isinstance(await launcher.next(), PodPending)
    assert await launcher.next() == PodStarted(pod=WORKER, service=Service.WORKER, instance=NEVER_STARTED)
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert (exited.instance, exited.cause) == (NEVER_STARTED, ExitCause.STOPPED)
    launcher.preparation.finish()
    await launcher.pods.execute(START, "5")
    started = await launcher.next()
    assert isinstance(started, PodStarted)
    assert started.instance != NEVER_STARTED
    assert isinstance(await launcher.next(), PodExited)


@pytest.mark.parametrize(("kill", "ordered_stops"), [(False, 1), (True, 0)])
async def test_a_start_after_an_ordered_stop_is_not_a_restart(tmp_path: Path, kill: bool, ordered_stops: int) -> None:
    launcher = Launcher(tmp_path, code="import time; time.sleep(600)")
    start = StartPod(pod=PS, service=Service.PS)
    await launcher.pods.execute(start, "3")
    await launcher.next()
    await launcher.pods.execute(StopPod(pod=PS, reason="fewer ps", kill=kill), "4")
    assert isinstance(await launcher.next(), PodExited)
    await launcher.pods.execute(StopPod(pod=PS, reason="again", kill=False), "5")
    await launcher.pods.execute(start, "6")
    assert (launcher.processes.usage[PS].starts, launcher.processes.usage[PS].ordered_stops) == (2, ordered_stops)
    launcher.processes.kill_all()


async def test_a_worker_that_can_not_be_started_is_reported_as_refused(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, program="/no/such/program")
    await launcher.pods.execute(START, "3")
    launcher.preparation.finish()
    assert isinstance(await launcher.next(), PodPending)
    assert isinstance(await launcher.next(), PodStarted)
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert exited.cause is ExitCause.REFUSED
    assert "/no/such/program can't be started" in exited.log_tail


@pytest.mark.parametrize("is_late", [False, True])
async def test_no_process_is_started_after_close(tmp_path: Path, is_late: bool) -> None:
    launcher = Launcher(tmp_path)
    await launcher.pods.execute(START, "3")
    if is_late:
        await asyncio.sleep(0)  # The start is waiting now.
    launcher.local.close()
    launcher.preparation.finish()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert isinstance(await launcher.next(), PodPending)
    assert launcher.published.empty()


@pytest.mark.parametrize(("kills", "cause"), [(3, ExitCause.PREEMPTED), (4, ExitCause.OUT_OF_MEMORY)])
async def test_an_out_of_memory_kill_has_a_cause_of_its_own(tmp_path: Path, kills: int, cause: ExitCause) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 17\noom_kill 3\n")
    wait = f"while not os.path.exists({str(tmp_path / 'go')!r}): os.sched_yield()"
    launcher = Launcher(tmp_path, code=f"import os, signal\n{wait}\nos.kill(os.getpid(), signal.SIGKILL)")
    await launcher.pods.execute(StartPod(pod=PS, service=Service.PS), "3")
    await launcher.next()
    vmstat.write_text(f"pgfault 18\noom_kill {kills}\n")
    (tmp_path / "go").touch()
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert (exited.cause, exited.exit_code) == (cause, -9)


async def test_an_order_to_stop_a_process_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    """A master that died before the answer arrived leaves the order to its successor, which repeats it."""
    launcher = Launcher(tmp_path, code="import time; time.sleep(600)")
    await launcher.pods.execute(StartPod(pod=PS, service=Service.PS), "3")
    first = await launcher.next()
    assert isinstance(first, PodStarted)
    stop = StopPod(pod=PS, reason="unresponsive", kill=True, instance=first.instance)
    await launcher.pods.execute(stop, "4")
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert exited.instance == first.instance
    await launcher.pods.execute(StartPod(pod=PS, service=Service.PS), "5")
    second = await launcher.next()
    assert isinstance(second, PodStarted)
    await launcher.pods.execute(stop, "4")
    await launcher.pods.execute(StopPod(pod=PS, reason="scaled down", kill=True), "4")
    await asyncio.sleep(0)
    assert launcher.processes.names() == [PS]
    await launcher.pods.execute(StopPod(pod=PS, reason="scaled down", kill=True), "6")
    exited = await launcher.next()
    assert isinstance(exited, PodExited)
    assert exited.instance == second.instance
