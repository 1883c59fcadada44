"""One run of a local job: starts NATS server, master and pods, watches over them, and returns how the run ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from elasticdl.cli import interrupts
from elasticdl.cli.jobs.run_directory import DISK_BYTES_MIN, RunDirectory
from elasticdl.cli.local.broker import Broker
from elasticdl.cli.local.observer import JobObserver
from elasticdl.cli.local.pods import LocalPods
from elasticdl.cli.local.processes.children import ChildProcesses, Exit, Usage, own_usage
from elasticdl.cli.local.processes.fork_server import ForkServers
from elasticdl.cli.local.processes.imports import service_command
from elasticdl.cli.local.processes.logs import bound, last_error
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.cli.local.restart_policy import RestartPolicy
from elasticdl.master.core import State
from elasticdl.master.tensorboard.live import write_event_files
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.errors import ElasticDLError, PermanentError
from elasticdl.shared.failure_detection.detector import FailureDetector, MissedHeartbeats
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.failure_detection.heartbeats import HEARTBEAT_INTERVAL_S, HEARTBEAT_TIMEOUT_S
from elasticdl.shared.failure_detection.monitor import HeartbeatMonitor
from elasticdl.shared.messages.events import Event, JobResumed, StopRequested
from elasticdl.shared.messages.measurements import ProcessMeasured
from elasticdl.shared.names import LAUNCHER, MASTER, PodName, Service
from elasticdl.shared.pods.supervisor import PodSupervisor
from elasticdl.shared.process.clock import Clock, JobClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import QueuedEventPublisher
from elasticdl.shared.process.settings import variable
from elasticdl.views import reading
from elasticdl.views.job_monitor import JobMonitor

BROKER = "nats-server"
TICK_S = 0.25
STOP_S_MAX = 45.0
"""Seconds from a request to stop until everything is killed. The master gives its pods less."""
MEASURE_EVERY_S = 15.0
"""Seconds between two records of what the run has measured so far."""
MEASURED_S_MAX = 10.0
"""Seconds to put the last measurements on the log. An aborted run may have lost its NATS server."""
LEFTOVERS_S_MAX = 10.0
"""Seconds that the processes of an ended job get to exit by themselves."""

Environment = Callable[[str, PodName, Service], Mapping[str, str]]
"""(URL of the NATS server, pod, service) -> environment of its process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a local job runs on; ``forks``: starts the services instead, if given."""

    broker: Broker
    connect: Callable[[str], Awaitable[Bus]]
    environment: Environment
    spawner: Spawner
    forks: ForkServers | None = None
    command: Callable[[Service], list[str]] = service_command


class LocalJob:
    """Runs a job's processes on this machine until the job has ended; the caller has locked the folder of ``run``."""

    def __init__(
        self, run: RunDirectory, runtime: Runtime, observer: JobObserver, started_s: float, clock: JobClock
    ) -> None:
        self._started_s = started_s
        self._run = run
        self._runtime = runtime
        self._broker = runtime.broker
        self._observer = observer
        self._clock = clock
        self._processes = ChildProcesses(runtime.forks or runtime.spawner, self._exited_on_its_thread)
        self._restart_policy = RestartPolicy()
        self.has_started = False
        """Whether a master was started."""
        self._interrupted = False
        self._stopping = False
        self._kill = False

    async def run(self, *opening: Event) -> State:
        """Run the job; returns it as its log describes it.

        Args:
            opening: the first events of the run: JobSubmitted or JobResumed, or both if the log is lost.
        """
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[str] = self._loop.create_future()
        with interrupts.handled(self._loop, self._interrupt), self._fork_servers():
            url = await self._broker.start()
            try:
                bus = await self._runtime.connect(url)
                try:
                    return await self._run_on(bus, url, opening)
                finally:
                    await bus.close()
            finally:
                self._processes.kill_all()
                await asyncio.to_thread(self._broker.stop)

    async def _run_on(self, bus: Bus, url: str, opening: Sequence[Event]) -> State:
        forks = self._runtime.forks
        if isinstance(opening[-1], JobResumed):
            await bus.tasks.purge(await bus.tasks.last_seq())
        past = await reading.exact(bus, all_evaluations=True)
        self._clock.continue_from(past.state.clock_s)
        self._started_s += self._clock.ahead_s
        self._observer.on_start(past.state)
        self._monitor = JobMonitor(past, self._clock, self._observer.on_record)
        self._envelopes = EnvelopeFactory(service=Service.LAUNCHER, name=LAUNCHER, clock=self._clock)
        self._incarnation = self._envelopes.incarnation
        self._publisher = QueuedEventPublisher(bus.log, self._envelopes)
        for event in opening:
            # Before a master reads the log: without JobResumed it would take a stopped job for ended.
            await self._publisher.open(event)
        self._pods = LocalPods(
            self._processes,
            self._run,
            partial(self._environment, url),
            self._runtime.command,
            preparations=forks.servers if forks else {},
        )
        self._supervisor = PodSupervisor(self._pods, self._publisher.publish)
        await bus.signals.serve_orders(LAUNCHER, self._supervisor.execute)
        self._watchdog = Watchdog(bus, self._clock, self._kill_hung_master, self._kill_hung_broker)
        self._url = url
        if forks:
            settled = asyncio.create_task(forks.servers[Service.MASTER].settle())
            either: list[asyncio.Future[Any]] = [settled, self._ended]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self._start_master()
        self._observer.on_accepted()
        abort_reason = await self._until_ended(bus)
        self._pods.close()
        await self._end_leftovers()
        return await self._measured(bus, abort_reason)

    async def _measured(self, bus: Bus, abort_reason: str) -> State:
        """Put on the log what this run has measured; returns the job as the log then describes it."""
        usage = self._processes.usage
        if forks := self._runtime.forks:
            for name, (cpu_s, rss_bytes) in (await asyncio.to_thread(forks.end_job)).items():
                usage[name] = Usage(starts=1, cpu_s=cpu_s, rss_max_bytes=rss_bytes)
        if starts := self._broker.starts:
            cpu_s, rss_bytes = self._broker.usage()
            usage[BROKER] = Usage(starts=starts, cpu_s=cpu_s, rss_max_bytes=rss_bytes)
        usage[LAUNCHER] = own_usage()
        run = replace(
            self._monitor.meter.measured(self._monitor.state, self._started_s),
            ended_s=self._clock.now(),
            abort_reason=abort_reason,
            is_interrupted=self._interrupted or self._monitor.stopped_by_client,
        )
        processes = [
            ProcessMeasured(
                process=PodName(name),
                cpu_s=round(each.cpu_s, 2),
                rss_max_bytes=each.rss_max_bytes,
                restarts=each.restarts,
            )
            for name, each in sorted(usage.items())
        ]
        try:
            async with asyncio.timeout(MEASURED_S_MAX):
                events: tuple[Event, ...] = (*processes, run)
                for event in events:
                    await bus.log.append(self._envelopes.envelope(event))
                state = (await reading.exact(bus, all_evaluations=True)).state
        except (ElasticDLError, TimeoutError):  # NATS is unreachable: return the live state.
            state = self._monitor.state
            state.measured, state.processes = run, {each.process: each for each in processes}
            return state
        await write_event_files(bus.log)  # The master has exited before this last measurement.
        return state

    async def _until_ended(self, bus: Bus) -> str:
        """Returns why the launcher aborts the run; empty if the master exited because the job has ended."""
        monitor = self._monitor
        tasks: list[asyncio.Task[None]] = [
            asyncio.create_task(coroutine)
            for coroutine in (
                self._publisher.run(),
                self._supervisor.run(),
                monitor.follow(bus.log),
                monitor.listen(bus),
                self._tick(),
                self._broker.supervise(self._observer.print_line),
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
                # The master exited after the end of the job. Its last decisions may still be on their way.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(monitor.final.wait(), LEFTOVERS_S_MAX)
            return self._ended.result()
        finally:
            self._end("ended")  # From now on no process is restarted.
            await _cancel_all(tasks)

    def _reason(self, task: asyncio.Task[None]) -> str:
        """Why a task that should never end did; an unexpected error is raised."""
        error = task.exception()
        problem = self._folder_problem()
        if error is not None and not problem and not isinstance(error, ElasticDLError):
            raise error
        return problem or str(error or "the NATS server closed the connection")

    async def _tick(self) -> None:
        measured_s = time.monotonic()
        while True:
            if time.monotonic() >= measured_s + MEASURE_EVERY_S:
                measured_s = time.monotonic()
                self._publisher.publish(self._monitor.meter.measured(self._monitor.state, self._started_s))
            for _ in range(round(1 / TICK_S)):
                pids = {MASTER: self._processes.pid(MASTER) or 0, BROKER: self._broker.pid}
                goodput = self._monitor.meter.goodput(self._monitor.state)
                self._observer.on_tick(self._monitor.state, self._monitor.heartbeats, pids, goodput)
                await asyncio.sleep(TICK_S)
            self._processes.sample()
            bound(self._run.logs)
            problem = self._folder_problem()
            if problem and not self._run.is_there():
                raise PermanentError(problem)
            if problem and not self._stopping:
                self._request_stop(problem)
                self._observer.print_line(f"{problem}. Stopping the job; it can be resumed.")

    @contextlib.contextmanager
    def _fork_servers(self) -> Iterator[None]:
        """Import the services while the NATS server starts."""
        forks = self._runtime.forks
        if forks is None:
            yield
            return
        forks.begin(self._run.logs)
        try:
            yield
        finally:
            forks.end_job()

    def _environment(self, url: str, pod: PodName, service: Service) -> dict[str, str]:
        return {
            **self._runtime.environment(url, pod, service),
            variable("run"): self._incarnation,
            variable("clock_zero_s"): str(self._clock.zero_s),
        }

    # --- the master -----------------------------------------------------------------------------------------------

    def _start_master(self) -> None:
        if self._ended.done():
            return
        self.has_started = True
        try:
            self._processes.start(
                MASTER,
                self._runtime.command(Service.MASTER),
                environment=self._environment(self._url, MASTER, Service.MASTER),
                log=self._run.log(MASTER),
            )
        except PermanentError as error:
            self._end(self._folder_problem() or str(error))

    def _exited_on_its_thread(self, ended: Exit) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed, because the run has ended.
            self._loop.call_soon_threadsafe(self._exited, ended)

    def _exited(self, ended: Exit) -> None:
        if ended.name != MASTER:
            self._pods.on_exit(ended)
            return
        self._watchdog.master_ended()
        if self._ended.done():
            return
        log = self._run.log(MASTER)
        decision = self._restart_policy.decide(ended.exit_code, time.monotonic(), lambda lines: last_error(log, lines))
        if decision.ends:
            self._end(decision.message and (self._folder_problem() or decision.message))
            return
        self._observer.print_line(decision.message)
        self._loop.call_later(decision.delay_s, self._start_master)

    def _kill_hung_master(self) -> None:
        self._observer.print_line("The master does not respond. Restarting it.")
        self._processes.signal(MASTER, signal.SIGKILL)

    def _kill_hung_broker(self) -> None:
        # After a restart, the clients may need some seconds to find the new server.
        if self._broker.up_s > HEARTBEAT_TIMEOUT_S:
            self._observer.print_line("nats-server does not respond. Restarting it.")
            self._broker.kill()

    # --- the end --------------------------------------------------------------------------------------------------

    def _interrupt(self, number: signal.Signals) -> None:
        if number is signal.SIGHUP and self.has_started:
            self._observer.on_terminal_closed()
            return
        self._interrupted = True
        if not self.has_started:
            self._end("interrupted before the job started")
        elif self._stopping:
            self._kill = True
            self._end("killed")
        elif not self._stopping:
            self._request_stop(number.name)
            self._observer.print_line(
                "Stopping: workers finish their batch, and the model is saved in a snapshot. "
                "Press Ctrl-C again to kill them at once."
            )

    def _request_stop(self, reason: str) -> None:
        self._stopping = True
        self._publisher.publish(StopRequested(reason=reason))
        self._loop.call_later(STOP_S_MAX, self._end, f"the job did not stop within {STOP_S_MAX:g} s")

    def _end(self, abort_reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(abort_reason)

    async def _end_leftovers(self) -> None:
        """End all processes that are still running, since there is no master any more that would."""
        if not self._kill:
            for name in self._processes.names():
                self._processes.signal(name, signal.SIGTERM)
            await asyncio.to_thread(self._processes.wait_all, LEFTOVERS_S_MAX)
        await asyncio.to_thread(self._processes.kill_all)

    def _folder_problem(self) -> str:
        """What is wrong with the run directory, if nothing can be written to it any more."""
        if not self._run.is_there():
            return f"the run directory {self._run.path} was removed while the job was running"
        return self._run.disk_problem(DISK_BYTES_MIN)


async def _cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: ``wait_for`` of Python 3.11 loses a cancellation that meets its result."""
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=TICK_S)
    await asyncio.gather(*tasks, return_exceptions=True)


class Watchdog:
    """Sends the launcher's heartbeats, and monitors them and the master's.

    Args:
        kill_broker: kills a NATS server that does not deliver the launcher's own heartbeats to it.
    """

    def __init__(
        self, bus: Bus, clock: Clock, kill_master: Callable[[], None], kill_broker: Callable[[], None]
    ) -> None:
        self._bus = bus
        self._kill_master = kill_master
        self._kill_broker = kill_broker
        self._envelopes = EnvelopeFactory(service=Service.LAUNCHER, name=LAUNCHER, clock=clock)
        self._detector = FailureDetector(
            own=LAUNCHER, timeout_s=HEARTBEAT_TIMEOUT_S, interval_s=HEARTBEAT_INTERVAL_S, unannounced=(MASTER,)
        )
        self._monitor = HeartbeatMonitor(bus.signals, clock, self._detector, self._on_tick)

    def master_ended(self) -> None:
        """Expect no heartbeats of the master until it sends the first."""
        self._detector.forget(MASTER)

    async def run(self) -> None:
        """Watch; never returns."""
        sending = asyncio.create_task(
            send_heartbeats(self._bus.signals, self._envelopes, HEARTBEAT_INTERVAL_S), name="heartbeats"
        )
        try:
            await self._monitor.run(HEARTBEAT_INTERVAL_S)
        finally:
            sending.cancel()

    def _on_tick(self, missed: list[MissedHeartbeats]) -> None:
        if any(each.pod == MASTER for each in missed):
            self._kill_master()
        if self._detector.broker_timed_out():
            self._kill_broker()
