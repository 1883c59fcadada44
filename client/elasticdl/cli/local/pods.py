"""Which pods run: executes the master's orders, and reports starts and exits. The simulator runs the same rules."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from elasticdl.cli.local.exits import Exit, exit_cause
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.commands import Command, StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodStarted, RunningBatch
from elasticdl.shared.names import PodInstance, PodName, Service

OUT_OF_MEMORY = (
    "\nThe kernel killed the process because the machine ran out of memory. "
    "Use smaller minibatches, fewer workers or more ps."
)

NEVER_STARTED = PodInstance("never started")
"""Instance of a pod whose start was cancelled or refused before there was a process."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitTraces:
    """What is known about a process after its end.

    Attributes:
        is_out_of_memory: whether the kernel killed it because memory ran out.
        running_batches: batches that it was processing.
        batches: batches that it had computed.
    """

    is_out_of_memory: bool = False
    running_batches: tuple[RunningBatch, ...] = ()
    batches: int = 0


class PodProcesses(Protocol):
    """Processes by pod, at most one each: ``ServiceProcesses``."""

    def start(self, pod: PodName, service: Service) -> tuple[PodInstance, bool]:
        """Start the process of a pod unless it is running.

        Returns:
            The process, and whether it was started now.

        Raises:
            PermanentError: it can't be started.
        """
        ...

    def stop(self, pod: PodName, *, kill: bool) -> None:
        """Terminate or kill the process of a pod, if it is running."""
        ...

    def traces(self, ended: Exit, service: Service) -> ExitTraces:
        """What a process left; read once."""
        ...

    def log_tail(self, pod: str, cause: ExitCause) -> str:
        """The lines of its log that explain an exit; empty where none has to be explained."""
        ...


class LocalPods:
    """Worker and ps processes; all methods are called on the loop's thread.

    Args:
        processes: the launcher's children.
        publish: takes events for the log.
        preparations: what the processes of a service wait for. Their orders are answered at once nevertheless.
    """

    def __init__(
        self, processes: PodProcesses, publish: Publish, preparations: Mapping[Service, Preparation] | None = None
    ) -> None:
        self._processes = processes
        self._publish = publish
        self._preparations = preparations or {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._services: dict[str, Service] = {}
        self._instances: dict[str, PodInstance] = {}
        self._starts: dict[str, int] = {}
        """Pod -> the decision that its last start was ordered by."""

    async def execute(self, command: Command, cause: str) -> None:
        """Execute a command. A command that was executed before changes nothing.

        Raises:
            PermanentError: it can't be executed.
        """
        match command:
            case StartPod(pod=pod) if pod in self._waiting:
                pass
            case StopPod() if self._is_for_former_process(command, cause):
                pass
            case StartPod(pod=pod, service=service) if not self._is_prepared(service):
                self._services[pod] = service
                self._starts[pod] = int(cause)
                self._waiting[pod] = asyncio.create_task(self._start_when_prepared(pod, service, cause))
            case StartPod(pod=pod, service=service):
                self._start(pod, service, cause)
            case StopPod(pod=pod) if pod in self._waiting:
                self._waiting.pop(pod).cancel()
                self._report_never_started(pod, ExitCause.FINISHED, "")
            case StopPod(pod=pod, kill=kill):
                self._processes.stop(pod, kill=kill)
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
        traces = self._processes.traces(ended, service)
        cause = exit_cause(ended.exit_code, out_of_memory=traces.is_out_of_memory)
        self._publish(
            PodExited(
                pod=PodName(ended.name),
                service=service,
                instance=self._instances.pop(ended.name),
                cause=cause,
                exit_code=ended.exit_code,
                running_batches=traces.running_batches,
                log_tail=self._processes.log_tail(ended.name, cause) + OUT_OF_MEMORY * traces.is_out_of_memory,
                batches=traces.batches,
            )
        )

    def _is_for_former_process(self, command: StopPod, cause: str) -> bool:
        """Whether a master, or its successor once more, wants to stop a process that has been replaced since."""
        if command.instance:
            return command.instance != self._instances.get(command.pod)
        return int(cause) < self._starts.get(command.pod, 0)

    def _is_prepared(self, service: Service) -> bool:
        preparation = self._preparations.get(service)
        return preparation is None or preparation.is_settled

    async def _start_when_prepared(self, pod: PodName, service: Service, cause: str) -> None:
        await self._preparations[service].settle()
        del self._waiting[pod]
        try:
            self._start(pod, service, cause)
        except PermanentError as error:  # The order was answered already, so it can't be refused any more.
            self._report_never_started(pod, ExitCause.REFUSED, str(error))

    def _report_never_started(self, pod: PodName, cause: ExitCause, reason: str) -> None:
        """Report start and end of an instance for which no process was started."""
        service = self._services[pod]
        self._publish(PodStarted(pod=pod, service=service, instance=NEVER_STARTED))
        code = int(cause is not ExitCause.FINISHED)
        self._publish(
            PodExited(pod=pod, service=service, instance=NEVER_STARTED, cause=cause, exit_code=code, log_tail=reason)
        )

    def _start(self, pod: PodName, service: Service, cause: str) -> None:
        self._services[pod] = service
        self._instances[pod], is_new = self._processes.start(pod, service)
        if is_new:
            self._starts[pod] = int(cause)
            self._publish(PodStarted(pod=pod, service=service, instance=self._instances[pod]), cause=cause)
