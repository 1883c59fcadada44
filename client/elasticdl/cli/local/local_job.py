"""One run of a local job: broker, master and pods from the first to the last, and what ended it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elasticdl.cli.jobs.run_directory import DISK_BYTES_MIN, RunDirectory
from elasticdl.cli.local.broker import Broker
from elasticdl.cli.local.event_publisher import QueuedEventPublisher
from elasticdl.cli.local.exits import exit_cause
from elasticdl.cli.local.follower import Audience, Follower
from elasticdl.cli.local.fork_server import ForkServers
from elasticdl.cli.local.logs import last_word, tail
from elasticdl.cli.local.pods import PodKeeper, service_command
from elasticdl.cli.local.processes import Exit, Processes, Usage
from elasticdl.cli.local.restart_policy import Revivals
from elasticdl.cli.local.spawner import Spawner
from elasticdl.cli.local.watchdog import Watchdog
from elasticdl.master.core import State
from elasticdl.master.snapshots.recovery import recover
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import ElasticDLError, PermanentError
from elasticdl.shared.messages.events import Event, ExitCause, JobResumed, StopRequested
from elasticdl.shared.names import LAUNCHER, MASTER, PodName, Service
from elasticdl.shared.process.clock import SystemClock

BROKER = "nats-server"
TICK_S = 0.25
STOP_S_MAX = 45.0
"""Seconds from a request to stop until everything is killed; the master itself gives its pods less."""
LEFTOVERS_S_MAX = 10.0
"""Seconds that the processes of a job that is over get to end by themselves."""

Environment = Callable[[str, PodName, Service], Mapping[str, str]]
"""(URL of the broker, pod, service) -> environment of its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a launcher's run ended.

    Attributes:
        state: the job as its log tells it.
        gave_up: why the launcher ended it without the master's last word, or empty.
        interrupted: whether somebody asked for the end.
        usage: what each process name has cost.
        batches_absorbed: batches that the ps have absorbed in this run, each counted once.
        batches_computed: batches that this run's workers have computed, repeated ones too.
        worker_seconds: seconds of all workers while the job trained: useful, recomputed, stalled, starting.
        first_gradient_s: when a ps was first seen to have learned something in this run; 0: never.
    """

    state: State
    gave_up: str
    interrupted: bool
    usage: Mapping[str, Usage]
    batches_absorbed: int
    batches_computed: int
    worker_seconds: Mapping[str, float]
    first_gradient_s: float


class LocalJob:
    """Keeps a job's processes on this machine until the job is final.

    Args:
        run: the job's folder, locked by the caller.
        broker: where the bus is.
        connect: URL -> the job's bus.
        environment: of each process.
        audience: is told what happens.
        spawner: forks the children.
        forks: forks the services in its stead, if given.
        command: the command line of a service.
    """

    def __init__(
        self,
        *,
        run: RunDirectory,
        broker: Broker,
        connect: Callable[[str], Awaitable[Bus]],
        environment: Environment,
        audience: Audience,
        spawner: Spawner,
        forks: ForkServers | None = None,
        command: Callable[[Service], list[str]] = service_command,
    ) -> None:
        self._run = run
        self._broker = broker
        self._connect = connect
        self._environment = environment
        self._audience = audience
        self._clock = SystemClock()
        self._command = command
        self._forks = forks
        self._processes = Processes(forks or spawner, self._exited_on_its_thread)
        self._revivals = Revivals()
        self._begun = False
        self._interrupted = False
        self._stopping = False
        self._kill = False

    async def run(self, *opening: Event) -> Ending:
        """Run the job.

        Args:
            opening: JobSubmitted or JobResumed, or one after the other where the log is lost: what is put on it first.

        Raises:
            ElasticDLError: the broker can't be started or reached.
        """
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        with self._signals(), self._forking():
            url = await self._broker.start()
            try:
                bus = await self._connect(url)
                try:
                    return await self._run_on(bus, url, opening)
                finally:
                    await bus.close()
            finally:
                self._processes.kill_all()
                cpu_s, rss_bytes = await asyncio.to_thread(self._broker.stop)
                if starts := self._broker.starts:
                    self._processes.usage[BROKER] = Usage(starts=starts, cpu_s=cpu_s, rss_max_bytes=rss_bytes)

    async def _run_on(self, bus: Bus, url: str, opening: Sequence[Event]) -> Ending:
        if isinstance(opening[-1], JobResumed):
            await bus.tasks.purge()
        self._follower = Follower(self._audience, past=await recover(bus))
        self._publisher = QueuedEventPublisher(bus.log, self._clock, Service.LAUNCHER, LAUNCHER)
        for event in opening:
            await self._publisher.open(event)  # Before a master reads the log: without it a stopped job is over.
        environment = partial(self._environment, url)
        preparations = self._forks.servers if self._forks else {}
        self._keeper = PodKeeper(
            self._processes, self._run, environment, self._publisher.note, self._command, preparations
        )
        await bus.signals.serve_orders(LAUNCHER, self._keeper.obey)
        self._watchdog = Watchdog(bus, self._clock, self._end_frozen_master, self._end_frozen_broker)
        self._begun = True
        self._url = url
        if self._forks:
            await self._forks.servers[Service.MASTER].settle()
        self._start_master()
        gave_up = await self._until_ended(bus)
        self._keeper.close()
        await self._end_leftovers()
        state = self._follower.state
        if not gave_up:
            with contextlib.suppress(ElasticDLError):  # The broker went at the very end: what was seen live must do.
                state = (await recover(bus)).state
        return Ending(
            state=state,
            gave_up=gave_up,
            interrupted=self._interrupted or self._follower.stopped_by_client,
            usage=self._processes.usage,
            batches_absorbed=self._follower.batches_absorbed,
            batches_computed=self._follower.batches_computed,
            worker_seconds=self._follower.worker_seconds(),
            first_gradient_s=self._follower.first_gradient_s,
        )

    async def _until_ended(self, bus: Bus) -> str:
        """Returns why the launcher gave up; empty when the master ended with its job."""
        follower = self._follower
        tasks: list[asyncio.Task[None]] = [
            asyncio.create_task(coroutine)
            for coroutine in (
                self._publisher.run(),
                follower.follow(bus.log),
                follower.listen(bus),
                self._tick(),
                self._broker.keep(self._audience.say),
                self._watchdog.run(),
            )
        ]
        try:
            everything: list[asyncio.Future[Any]] = [self._ended, *tasks]
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    return self._reason(task)
            if not self._ended.result():
                # The master has ended with the job; what it decided last is on its way to us.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(follower.final.wait(), LEFTOVERS_S_MAX)
            return self._ended.result()
        finally:
            self._end("over")  # Whoever ends from now on is not started again.
            await _cancel_all(tasks)

    def _reason(self, task: asyncio.Task[None]) -> str:
        """Why a task that should never end did; an error that is not ours to explain is raised."""
        error = task.exception()
        problem = self._folder_problem()
        if error is not None and not problem and not isinstance(error, ElasticDLError):
            raise error
        return problem or str(error or "the broker hung up")

    async def _tick(self) -> None:
        while True:
            for _ in range(round(1 / TICK_S)):
                pids = {MASTER: self._processes.pid(MASTER) or 0, BROKER: self._broker.pid}
                self._audience.tick(self._follower.state, self._follower.beats, pids, self._follower.goodput)
                self._processes.sample()
                await asyncio.sleep(TICK_S)
            problem = self._folder_problem()
            if problem and not self._run.is_there():
                raise PermanentError(problem)
            if problem and not self._stopping:
                self._request_stop(problem)
                self._audience.say(f"{problem}; the job stops and can be resumed")

    @contextlib.contextmanager
    def _forking(self) -> Iterator[None]:
        """Have the services imported while the broker starts."""
        if self._forks is None:
            yield
            return
        self._forks.begin(partial(self._environment, ""), self._run.log)
        try:
            yield
        finally:
            for name, (cpu_s, rss_bytes) in self._forks.stop().items():
                self._processes.usage[name] = Usage(starts=1, cpu_s=cpu_s, rss_max_bytes=rss_bytes)

    # --- the master -----------------------------------------------------------------------------------------------

    def _start_master(self) -> None:
        if self._ended.done():
            return
        try:
            self._processes.start(
                MASTER,
                self._command(Service.MASTER),
                environment=self._environment(self._url, MASTER, Service.MASTER),
                log=self._run.log(MASTER),
            )
        except PermanentError as error:
            self._end(self._folder_problem() or str(error))

    def _exited_on_its_thread(self, ended: Exit) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody wants to know any more.
            self._loop.call_soon_threadsafe(self._exited, ended)

    def _exited(self, ended: Exit) -> None:
        if ended.name != MASTER:
            self._keeper.exited(ended)
            return
        self._watchdog.master_ended()
        match exit_cause(ended.exit_code):
            case ExitCause.FINISHED:
                self._end("")
            case ExitCause.REFUSED:
                self._end(self._folder_problem() or f"the master can't go on:\n{tail(self._run.log(MASTER), 5)}")
            case ExitCause.OWN_FAULT | ExitCause.OUTSIDE:
                self._revive_master(ended)

    def _revive_master(self, ended: Exit) -> None:
        if self._ended.done():
            return
        log = self._run.log(MASTER)
        revival = self._revivals.after(ended.exit_code, time.monotonic(), lambda lines: last_word(log, lines))
        if revival.is_hopeless:
            self._end(revival.text)
            return
        self._audience.say(revival.text)
        self._loop.call_later(revival.wait_s, self._start_master)

    def _end_frozen_master(self) -> None:
        self._audience.say("the master does not answer and is replaced")
        self._processes.signal(MASTER, signal.SIGKILL)

    def _end_frozen_broker(self) -> None:
        if self._broker.pid:
            self._audience.say("nats-server does not answer and is replaced")
            self._broker.kill()

    # --- the end --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            self._loop.add_signal_handler(number, self._interrupt, number)
        try:
            yield
        finally:
            for number in numbers:
                self._loop.remove_signal_handler(number)

    def _interrupt(self, number: signal.Signals) -> None:
        self._interrupted = True
        if not self._begun:
            self._end("interrupted before the job had begun")
        elif self._stopping and number is not signal.SIGHUP:
            self._kill = True
            self._end("killed")
        elif not self._stopping:
            self._request_stop(number.name)
            self._audience.say("stopping: workers finish their batch, every ps takes a snapshot (again: kill at once)")

    def _request_stop(self, reason: str) -> None:
        self._stopping = True
        self._publisher.note(StopRequested(reason=reason))
        self._loop.call_later(STOP_S_MAX, self._end, f"the job did not stop within {STOP_S_MAX:g} s")

    def _end(self, gave_up: str) -> None:
        if not self._ended.done():
            self._ended.set_result(gave_up)

    async def _end_leftovers(self) -> None:
        """End whoever is still there; without a master nobody else would."""
        if not self._kill:
            for name in self._processes.names():
                self._processes.signal(name, signal.SIGTERM)
            await asyncio.to_thread(self._processes.wait_all, LEFTOVERS_S_MAX)
        await asyncio.to_thread(self._processes.kill_all)

    def _folder_problem(self) -> str:
        """What is wrong with the run directory: nothing can be kept any more."""
        if not self._run.is_there():
            return f"the run directory {self._run.path} was removed while the job ran"
        return self._run.disk_problem(DISK_BYTES_MIN)


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: ``wait_for`` of Python 3.11 loses a cancellation that meets its result."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=TICK_S)
    await asyncio.gather(*tasks, return_exceptions=True)
