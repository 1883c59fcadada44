"""The job handle: a job as commands see it, wherever it runs.

``LocalJobHandle`` is the one for a job on this machine, ``KubernetesJobHandle`` the one for a job in a cluster.

These commands use the run directory instead: ``resume``, ``export`` and ``chaos``, because they start or kill processes
of this machine, and ``clean``, because it goes through all folders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from elasticdl.cli.jobs.run_directory import INTERRUPTED
from elasticdl.shared.bus.ports import Bus, JobReader
from elasticdl.shared.bus.reading import present_records
from elasticdl.shared.errors import ElasticDLError, TransientError, UserError
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import JobId
from elasticdl.shared.process.garbage import uncollected

POLL_S = 1.0
"""Seconds between two checks whether a job is still running."""
READ_INTERVAL_S = 1.0
"""Seconds between two requests of a command that follows the log of a running job, so that it costs the job little."""
END_S = 10.0
"""Seconds within which a launcher ends after its NATS server."""
T = TypeVar("T")


class JobNotFoundError(UserError):
    """No job has this id or name, or it is not there any more."""


class JobEndedError(UserError):
    """The job has ended while something was done with its bus, and its NATS server with it."""


class NewLogLines(Protocol):
    """Returns (pod, line) for each line that was logged since the last call."""

    def __call__(self, *, last: bool = False) -> Sequence[tuple[str, str]]:
        """Some of the lines, or all of them if ``last``: the process has ended, and its last line may have no end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Why a running job executes no requests at the moment."""

    process: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is known about a job without its event log.

    Attributes:
        is_running: whether the process that runs the job, its launcher for example, is there.
        state: the job's state as that process last knew it, or ``interrupted``.
        message: why it failed, or empty.
        next_step: what to do after it failed or was stopped, in one line, or empty.
        kill_command: kills a running job; it can be resumed after that.
        waiting: why the master of a running job has not started, or empty.
        can_terminate: whether ``terminate`` leaves a job that has begun so that it can be resumed.
        pids: process ids on this machine of processes that are in no log.
        interruption: why a job that is not running has no end on its log.
        was_running: it is known from an exported log, and ran when that was written.
        owns_server: its NATS server ends with the process that runs the job.
    """

    is_running: bool
    state: str
    message: str = ""
    next_step: str = ""
    suspension: Suspension | None = None
    kill_command: str = ""
    storage: str = ""
    waiting: str = ""
    can_terminate: bool = True
    pids: Mapping[str, int] = field(default_factory=dict)
    interruption: str = "its launcher is not running"
    was_running: bool = False
    owns_server: bool = False

    @property
    def is_ended(self) -> bool:
        """Whether the processes on the log are gone, although the log may not say so."""
        return not (self.is_running or self.was_running)

    @property
    def end(self) -> str:
        """How a job that is not running has ended, after its name; for one whose log does not say it."""
        if self.state == INTERRUPTED:
            return f"was interrupted: {self.interruption}"
        return f"has {self.state}" + (f": {self.message}" if self.message else "")


class PodLogs(Protocol):
    """What the processes of a job have logged, and what user code has printed."""

    def pods(self) -> Sequence[str]:
        """The processes that have a log."""
        ...

    def read(self, pods: Sequence[str], lines: int) -> tuple[Sequence[tuple[str, str]], NewLogLines]:
        """(pod, line) for the last lines of processes, as text for people, and what is logged after these.

        Args:
            pods: whose; empty: those of all processes.
        """
        ...

    def printed(self) -> NewLogLines:
        """What user code prints from now on."""
        ...


class ReadableJob(Protocol):
    """A job, as commands see it that only inspect it: also one whose log was exported."""

    @property
    def job(self) -> JobId:
        """The job's id."""
        ...

    @property
    def arguments(self) -> str:
        """The job on a command line."""
        ...

    def condition(self) -> Condition:
        """What is known about the job without its event log. Raises ``JobNotFoundError`` once the job is gone."""
        ...

    def open(self) -> AbstractAsyncContextManager[JobReader]:
        """The job's event log."""
        ...


class JobHandle(ReadableJob, Protocol):
    """A job, wherever it runs.

    Stopping and scaling are requests on the event log (``elasticdl.cli.jobs.requests``). Status, history and report
    are folded from the log.
    """

    @property
    def logs(self) -> PodLogs:
        """The logs of its processes."""
        ...

    def open(self) -> AbstractAsyncContextManager[Bus]:
        """The job's event log, and its heartbeats if it is running."""
        ...

    def terminate(self) -> None:
        """Stop a running job without its event log, because that can't be reached."""
        ...


def read_bus(job: ReadableJob, read: Callable[[JobReader], Awaitable[T]]) -> T:
    """What ``read`` finds on the bus of a job. If a running job ends meanwhile, ``read`` begins again on its files."""
    # ``asyncio.run`` restores the handler of SIGINT, for which Python formats the task with its result, twice: the text
    # of a state takes as long as reading it. So the task has no result.
    found: list[T] = []

    async def opened() -> None:
        async with job.open() as bus:
            found.append(await read(bus))

    async def reading() -> None:
        try:
            await unless_ended(job, opened)
        except JobEndedError:
            await opened()

    asyncio.run(reading())
    return found[0]


def read_records(job: ReadableJob, until: int = 0) -> list[LogRecord]:
    """All records that the event log of a job holds now; ``until``: the last one to read, 0: all."""

    async def read(bus: JobReader) -> list[LogRecord]:
        # The collector would look at all records again and again, which takes as long as decoding them.
        with uncollected():
            return [record async for record in present_records(bus.log, until=until)]

    return read_bus(job, read)


async def first_ended(*coroutines: Coroutine[Any, Any, object]) -> list[asyncio.Task[object]]:
    """Run coroutines until the first one ends, and cancel the others; returns their tasks, all of which have ended."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tasks


async def until_first_ends(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run coroutines until the first one ends, and cancel the others; raises what one of them has raised."""
    for task in await first_ended(*coroutines):
        if not task.cancelled():
            task.result()


async def unless_ended(job: ReadableJob, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Work with the bus of a job. The server of a running job can end with it; a request would be retried for minutes.

    Raises:
        JobEndedError: the job ended before the work was done, and its server with it.
    """
    if not await asyncio.to_thread(_can_lose_server, job):
        return await work()
    working, ending = asyncio.create_task(work()), asyncio.create_task(until_ended(job))
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if working.done() and isinstance(working.exception(), TransientError):  # The server ends before the launcher.
            await asyncio.wait((ending,), timeout=END_S)
        elif working.done():
            return working.result()
        if not ending.done() or ending.exception() is not None:  # If it can't be told, the work shows it.
            return await working
        raise JobEndedError(f"{job.job} {job.condition().end}")
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


def _can_lose_server(job: ReadableJob) -> bool:
    try:
        condition = job.condition()
    except ElasticDLError:  # The job may be gone, and its log still there.
        return False
    return condition.is_running and condition.owns_server


async def until_ended(
    job: ReadableJob, on_wait: Callable[[str], None] = lambda _text: None, poll_s: float = POLL_S
) -> None:
    """Wait until nothing runs the job any more.

    Args:
        on_wait: is called with what the job waits for, whenever that changes.
        poll_s: seconds between two looks, each of which takes a millisecond on this machine, and requests in a cluster.
    """
    told = ""
    while (condition := job.condition()).is_running:
        if condition.waiting != told:
            told = condition.waiting
            if told:
                on_wait(told)
        await asyncio.sleep(poll_s)
