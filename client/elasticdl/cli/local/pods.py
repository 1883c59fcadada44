"""Starts and stops pods as local processes on the master's orders, and reports their starts and exits."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.exits import OomWatch, exit_cause
from elasticdl.cli.local.processes.children import ChildProcesses, Exit
from elasticdl.cli.local.processes.logs import last_error, tail
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.commands import Command, StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodStarted
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.running_batches import file_of, read_batches, read_running_batches

MODULES: Mapping[Service, str] = {
    Service.MASTER: "elasticdl.master.main",
    Service.PS: "elasticdl.ps.main",
    Service.WORKER: "elasticdl.worker.main",
}
"""What ``python -m`` runs for each service."""
_REFUSAL_LINES, _CRASH_LINES = 3, 8
"""Lines of its log that are reported after a process refused to start, or crashed."""
OUT_OF_MEMORY = (
    "\nThe kernel killed the process because the machine ran out of memory. "
    "Use smaller minibatches, fewer workers or more ps."
)


class Publish(Protocol):
    """Takes events for the log: ``QueuedEventPublisher.publish``."""

    def __call__(self, event: Event, cause: str = "") -> None:
        """Append an event to the log."""
        ...


class Preparation(Protocol):
    """Something that has to finish before the processes of a service start: ``ForkServer``."""

    @property
    def is_settled(self) -> bool:
        """Whether it has finished, successfully or not."""
        ...

    async def settle(self) -> None:
        """Wait until it has finished."""
        ...


def service_command(service: Service) -> list[str]:
    """The command line of a service; its settings are in its environment."""
    return [sys.executable, "-m", MODULES[service]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """How pods are started.

    Attributes:
        environment: (pod, service) -> all of the environment.
        command: the command line of a service.
        preparations: what the processes of a service wait for. Their orders are answered at once nevertheless.
        oom_watch: detects out-of-memory kills.
    """

    environment: Callable[[PodName, Service], Mapping[str, str]]
    command: Callable[[Service], list[str]] = service_command
    preparations: Mapping[Service, Preparation] = field(default_factory=dict)
    oom_watch: OomWatch = field(default_factory=OomWatch)


class LocalPods:
    """Worker and ps processes; all methods are called on the loop's thread.

    Args:
        processes: the launcher's children.
        run: the job's folder.
        settings: how pods are started.
        publish: takes events for the log.
    """

    def __init__(self, processes: ChildProcesses, run: RunDirectory, settings: PodSettings, publish: Publish) -> None:
        self._processes = processes
        self._run = run
        self._settings = settings
        self._publish = publish
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._services: dict[str, Service] = {}
        self._stopped: set[PodName] = set()

    async def execute(self, command: Command, cause: str) -> None:
        """Execute a command. A command that was executed before changes nothing.

        Raises:
            PermanentError: it can't be executed.
        """
        match command:
            case StartPod(pod=pod) if pod in self._waiting:
                pass
            case StartPod(pod=pod, service=service) if not self._is_prepared(service):
                self._services[pod] = service
                self._waiting[pod] = asyncio.create_task(self._start_when_prepared(pod, service, cause))
            case StartPod(pod=pod, service=service):
                self._start(pod, service, cause)
            case StopPod(pod=pod) if pod in self._waiting:
                self._waiting.pop(pod).cancel()
                self._report_never_started(pod, ExitCause.FINISHED, "")
            case StopPod(pod=pod, kill=kill):
                if not kill and self._processes.pid(pod):
                    self._stopped.add(pod)
                self._processes.signal(pod, signal.SIGKILL if kill else signal.SIGTERM)
            case _:
                raise PermanentError(f"the launcher does not execute {type(command).__name__}")

    def close(self) -> None:
        """Cancel all starts that wait for a preparation."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def on_exit(self, ended: Exit) -> None:
        """Report the end of a process that ``execute`` started."""
        service = self._services[ended.name]
        out_of_memory = self._settings.oom_watch.has_killed(ended.name, ended.exit_code)
        cause = exit_cause(ended.exit_code, out_of_memory=out_of_memory)
        running_batches = file_of(self._run.running_batches / ended.name, ended.pid)
        held = read_running_batches(running_batches) if service is Service.WORKER else ()
        batches = read_batches(running_batches) if service is Service.WORKER else 0
        running_batches.unlink(missing_ok=True)
        self._publish(
            PodExited(
                pod=PodName(ended.name),
                service=service,
                pid=ended.pid,
                cause=cause,
                exit_code=ended.exit_code,
                running_batches=held,
                log_tail=_log_tail(self._run.log(ended.name), cause) + OUT_OF_MEMORY * out_of_memory,
                batches=batches,
            )
        )

    def _is_prepared(self, service: Service) -> bool:
        preparation = self._settings.preparations.get(service)
        return preparation is None or preparation.is_settled

    async def _start_when_prepared(self, pod: PodName, service: Service, cause: str) -> None:
        await self._settings.preparations[service].settle()
        del self._waiting[pod]
        try:
            self._start(pod, service, cause)
        except PermanentError as error:  # The order was answered already, so it can't be refused any more.
            self._report_never_started(pod, ExitCause.REFUSED, str(error))

    def _report_never_started(self, pod: PodName, cause: ExitCause, reason: str) -> None:
        """Report start and end of an instance for which no process was started."""
        service = self._services[pod]
        self._publish(PodStarted(pod=pod, service=service, pid=0))
        code = int(cause is not ExitCause.FINISHED)
        self._publish(
            PodExited(pod=pod, service=service, pid=0, cause=cause, exit_code=code, running_batches=(), log_tail=reason)
        )

    def _start(self, pod: PodName, service: Service, cause: str) -> None:
        self._services[pod] = service
        pid, new = self._processes.start(
            pod,
            self._settings.command(service),
            environment=self._settings.environment(pod, service),
            log=self._run.log(pod),
            output=self._run.output(pod) if service is Service.WORKER else None,
        )
        if new:
            self._settings.oom_watch.started(pod)
            if pod in self._stopped:
                self._stopped.discard(pod)
                self._processes.usage[pod].ordered_stops += 1
            self._publish(PodStarted(pod=pod, service=service, pid=pid), cause=cause)


def _log_tail(log: Path, cause: ExitCause) -> str:
    match cause:
        case ExitCause.REFUSED:
            return last_error(log, _REFUSAL_LINES)
        case ExitCause.OWN_FAULT:
            return tail(log, _CRASH_LINES)
        case _:
            return ""
