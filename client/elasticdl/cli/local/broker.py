"""The NATS server of a job: embedded, which the launcher starts and restarts, or external, which it leaves alone."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

import psutil

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.cli.local.restart_policy import RestartLimits
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.process.operating_system import die_with_parent
from elasticdl.shared.process.retries import RecentFailures

CHECK_S = 0.1
"""Seconds between two checks whether the server is running."""
LIMITS = RestartLimits()


class ExternalBroker:
    """The user's own NATS server, which is never started or stopped here."""

    pid = 0
    up_s = 0.0
    starts = 0

    def __init__(self, url: str) -> None:
        self._url = url

    async def start(self) -> str:
        """Its URL. Whether it is reachable shows when a client connects."""
        return self._url

    async def supervise(self, message: Callable[[str], None]) -> None:  # noqa: ARG002 - there is nothing to report
        """Wait forever."""
        await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """Does nothing."""

    def usage(self) -> tuple[float, int]:
        """Nothing: it serves others, too."""
        return 0.0, 0

    def stop(self) -> None:
        """Does nothing."""


class EmbeddedBroker:
    """A nats-server that serves this job only."""

    def __init__(self, spawner: Spawner, run: RunDirectory) -> None:
        self._spawner = spawner
        self._run = run
        self._server = NatsServer(run.nats, token=secrets.token_hex(16), before_exec=die_with_parent())
        self._crashes = RecentFailures(LIMITS.window_s)
        self._started_s = 0.0
        self._killed = False
        self.starts = 0

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._server.pid

    @property
    def up_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started_s

    async def start(self) -> str:
        """Start it on a free port; a restart uses the same port again."""
        self.starts += 1
        self._started_s, self._killed = time.monotonic(), False
        while True:
            try:
                url = await asyncio.to_thread(self._spawner.call, self._server.start)
                break
            except PermanentError:
                if not self._server.was_killed:
                    raise
        self._started_s, self._killed = time.monotonic(), False
        return url

    async def supervise(self, message: Callable[[str], None]) -> None:
        """Restart it whenever it dies; never returns.

        Raises:
            PermanentError: it has crashed more often than ``LIMITS`` allow. As for every process of a job, kills from
                outside do not count.
        """
        while True:
            await asyncio.sleep(CHECK_S)
            if self._server.is_running():
                continue
            has_crashed = self._killed or not self._server.was_killed
            if has_crashed and self._crashes.count(time.monotonic()) > LIMITS.crashes_max:
                raise PermanentError(f"nats-server keeps crashing; its log is {self._server.log_path}")
            if not self._killed:
                message("nats-server died. Restarting it on the same port.")
            await self.start()

    def kill(self) -> None:
        """Send SIGKILL, which ends a stopped process too, because it does not respond; ``supervise`` restarts it."""
        self._killed = True
        self._server.kill()

    def usage(self) -> tuple[float, int]:
        """The CPU seconds and the memory (bytes) that it has used; 0 if it is not running."""
        try:
            process = psutil.Process(self._server.pid)
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss
        except (psutil.Error, RuntimeError):
            return 0.0, 0

    def stop(self) -> None:
        """Stop it."""
        self._server.stop()


Broker = EmbeddedBroker | ExternalBroker
"""The NATS server of a job."""
