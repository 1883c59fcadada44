"""The platforms that the contract is tested on: real processes of this machine, and pods in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from tests.deadline import DEADLINE_S

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.pods import LocalPods
from elasticdl.cli.local.processes.children import ChildProcesses, Exit
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import JobId, PodInstance, PodName, Service
from elasticdl.shared.pods.causes import OUT_OF_MEMORY
from elasticdl.shared.pods.memory import MemoryPods
from elasticdl.shared.pods.ports import Ended, Pending, Pods
from elasticdl.shared.process.oom_watch import OomWatch

_OBEY = """
read -r order < "$ORDERS/$POD"
set -- $order
test "$1" = exit && exit "$2"
kill -"$2" $$
"""
"""A process that ends in the way that a line in its named pipe says."""


class Platform(Protocol):
    """A platform on which pods of ps start at once, and those of workers when the test says so."""

    @property
    def pods(self) -> Pods:
        """The pods of the platform."""
        ...

    def prepare(self, refusal: str = "") -> None:
        """Start the pending workers, or refuse them all."""
        ...

    async def finish(self, pod: PodName, exit_code: int) -> None:
        """End a process with an exit code, or minus the number of a signal."""
        ...

    async def run_out_of_memory(self, pod: PodName) -> None:
        """The kernel kills a process because memory ran out."""
        ...


class LocalPlatform:
    """Processes of this machine."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._prepared = asyncio.Event()
        self._refusal = ""
        self._orders = folder / "orders"
        self._orders.mkdir()
        self._vmstat = folder / "vmstat"
        self._vmstat.write_text("oom_kill 0\n")
        run = RunDirectory(folder, JobId("job-0001"))
        run.create()
        self.children = ChildProcesses(Spawner(), self._on_exit)
        self.pods = LocalPods(
            self.children,
            run,
            environment=self._environment,
            command=self._command,
            preparations={Service.WORKER: self},
            oom_watch=OomWatch(self._vmstat),
        )

    @property
    def is_settled(self) -> bool:
        """See ``Preparation``."""
        return self._prepared.is_set()

    async def settle(self) -> None:
        """See ``Preparation``."""
        await self._prepared.wait()

    def prepare(self, refusal: str = "") -> None:
        self._refusal = refusal
        self._prepared.set()

    async def finish(self, pod: PodName, exit_code: int) -> None:
        order = f"kill {-exit_code}" if exit_code < 0 else f"exit {exit_code}"
        await asyncio.wait_for(asyncio.to_thread((self._orders / pod).write_text, order + "\n"), DEADLINE_S)

    async def run_out_of_memory(self, pod: PodName) -> None:
        self._vmstat.write_text("oom_kill 1\n")
        await self.finish(pod, -9)

    def _environment(self, pod: PodName, service: Service) -> dict[str, str]:
        pipe = self._orders / pod
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        return {"ORDERS": str(self._orders), "POD": pod}

    def _command(self, service: Service) -> list[str]:
        return [self._refusal or "/bin/sh", "-c", _OBEY]

    def _on_exit(self, ended: Exit) -> None:
        self._loop.call_soon_threadsafe(self.pods.on_exit, ended)


class MemoryPlatform:
    """Pods in memory whose processes obey the test."""

    def __init__(self) -> None:
        self.pods = MemoryPods(self)
        self._pending: list[PodName] = []
        self._is_prepared = False
        self._instances = 0

    def start(self, pod: PodName, service: Service) -> None:
        """See ``Node``."""
        if service is Service.WORKER and not self._is_prepared:
            self.pods.pend(pod, "the test has not prepared it")
            self._pending.append(pod)
        else:
            self._instances += 1
            self.pods.run(pod, PodInstance(f"instance {self._instances}"))

    def stop(self, pod: PodName, *, kill: bool) -> None:
        """See ``Node``."""
        self.pods.exit(pod, -9 if kill else -15)

    def prepare(self, refusal: str = "") -> None:
        self._is_prepared = True
        for pod in self._pending:
            status = self.pods.get(pod)
            if status is None or not isinstance(status.phase, Pending):
                continue
            if refusal:
                self.pods.end(pod, Ended(cause=ExitCause.REFUSED, exit_code=1, log_tail=refusal))
            else:
                self.start(pod, Service.WORKER)

    async def finish(self, pod: PodName, exit_code: int) -> None:
        self.pods.exit(pod, exit_code)

    async def run_out_of_memory(self, pod: PodName) -> None:
        self.pods.exit(pod, -9, OUT_OF_MEMORY)


async def local(folder: Path) -> AsyncIterator[Platform]:
    """A platform of real processes; the last ones are killed at the end."""
    platform = LocalPlatform(folder)
    yield platform
    platform.pods.close()
    await asyncio.to_thread(platform.children.kill_all)
