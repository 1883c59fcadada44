"""The job's nats-server: started, kept alive on its port, stopped last; or somebody else's, left alone."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

import psutil

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.spawner import Spawner, die_with_parent
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.errors import PermanentError

CHECK_S = 0.1
"""Seconds between two looks at the server."""
RESTARTS_MAX = 5
"""Restarts within ``RESTARTS_S`` after which it is given up."""
RESTARTS_S = 60.0


class Broker(Protocol):
    """Where the job's bus is."""

    @property
    def pid(self) -> int:
        """Its process id; 0 when it is not ours."""
        ...

    @property
    def starts(self) -> int:
        """How many times it was started by us."""
        ...

    async def start(self) -> str:
        """Make sure that it is there; returns the URL for clients."""
        ...

    async def keep(self, say: Callable[[str], None]) -> None:
        """Keep it alive for ever.

        Raises:
            PermanentError: it can't be kept alive.
        """
        ...

    def kill(self) -> None:
        """End it at once, because it does not answer; ``keep`` starts it again."""
        ...

    def stop(self) -> tuple[float, int]:
        """End it; returns the processor seconds and the most memory (bytes) that it has used."""
        ...


class ForeignBroker:
    """The user's own NATS server; nobody here starts or stops it."""

    pid = 0
    starts = 0

    def __init__(self, url: str) -> None:
        self._url = url

    async def start(self) -> str:
        """Its URL; whether somebody answers there is found out by connecting."""
        return self._url

    async def keep(self, say: Callable[[str], None]) -> None:  # noqa: ARG002 - there is nothing to say
        """Wait for ever."""
        await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """It is left alone."""

    def stop(self) -> tuple[float, int]:
        """It is left alone."""
        return 0.0, 0


class OwnBroker:
    """A nats-server that serves this job only.

    Args:
        spawner: starts it, so that it dies with the launcher.
        run: keeps its files in the run directory.
    """

    def __init__(self, spawner: Spawner, run: RunDirectory) -> None:
        self._spawner = spawner
        self._run = run
        self._server = NatsServer(run.nats, token=secrets.token_hex(16), before_exec=die_with_parent())
        self._restarts: deque[float] = deque(maxlen=RESTARTS_MAX)
        self.starts = 0

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._server.pid

    async def start(self) -> str:
        """Start it on a free port; from the second time on, on the port that it had."""
        self.starts += 1
        return await asyncio.to_thread(self._spawner.call, self._server.start)

    async def keep(self, say: Callable[[str], None]) -> None:
        """Restart it whenever it has died, several times a minute at most."""
        while True:
            await asyncio.sleep(CHECK_S)
            if self._server.is_running():
                continue
            now_s = time.monotonic()
            if len(self._restarts) == RESTARTS_MAX and now_s - self._restarts[0] < RESTARTS_S:
                raise PermanentError(f"nats-server keeps dying; see {self._server.log_path}")
            self._restarts.append(now_s)
            say("nats-server died; it is restarted on its port")
            await self.start()

    def kill(self) -> None:
        """SIGKILL, which reaches a stopped process too."""
        self._server.kill()

    def stop(self) -> tuple[float, int]:
        """End it and say what it cost."""
        usage = (0.0, 0)
        with contextlib.suppress(psutil.Error, RuntimeError):
            process = psutil.Process(self._server.pid)
            times = process.cpu_times()
            usage = (times.user + times.system, process.memory_info().rss)
        self._server.stop()
        return usage
