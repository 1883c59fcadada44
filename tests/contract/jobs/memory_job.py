"""A job in memory: what the commands see of it without processes or files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.unit.cli.job_log import SPEC

from elasticdl.cli.jobs.handle import Condition, NewLogLines
from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.errors import TransientError
from elasticdl.shared.names import JobId


class MemoryLogs:
    """See ``PodLogs``: pod -> its lines."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}

    def pods(self) -> Sequence[str]:
        return sorted(self.lines)

    def read(self, pods: Sequence[str], lines: int) -> tuple[Sequence[tuple[str, str]], NewLogLines]:
        wanted = [pod for pod in self.pods() if not pods or pod in pods]
        return [(pod, line) for pod in wanted for line in self.lines[pod][-lines:]], self._new(pods)

    def printed(self) -> NewLogLines:
        return self._new([])

    def _new(self, pods: Sequence[str]) -> NewLogLines:
        read = {pod: len(lines) for pod, lines in self.lines.items()}

        def take(*, last: bool = False) -> Sequence[tuple[str, str]]:
            del last
            found = []
            for pod, lines in self.lines.items():
                found += [(pod, line) for line in lines[read.get(pod, 0) :] if not pods or pod in pods]
                read[pod] = len(lines)
            return found

        return take


class MemoryJob:
    """See ``JobHandle``.

    Args:
        broker: holds its event log.
    """

    def __init__(self, broker: MemoryBroker) -> None:
        self.logs = MemoryLogs()
        self.is_running = self.is_reachable = True
        self.is_terminated = False
        self.waiting = ""
        self._broker = broker

    @property
    def job(self) -> JobId:
        return SPEC.job

    @property
    def arguments(self) -> str:
        return f"{SPEC.job} --platform=memory"

    def condition(self) -> Condition:
        state = "training" if self.is_running else "interrupted"
        return Condition(is_running=self.is_running, state=state, waiting=self.waiting)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Bus]:
        if not self.is_reachable:
            raise TransientError("no answer")
        bus = self._broker.connect()
        try:
            yield bus
        finally:
            await bus.close()

    def terminate(self) -> None:
        self.is_terminated, self.is_running = True, False
