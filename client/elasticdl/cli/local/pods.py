"""The process adapter: does what the master orders and reports what became of it. It decides nothing."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.exits import exit_cause
from elasticdl.cli.local.logs import last_word, tail
from elasticdl.cli.local.memory import OomWatch
from elasticdl.cli.local.processes import Exit, Processes
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.commands import Command, StartPod, StopPod
from elasticdl.shared.messages.events import Event, ExitCause, PodExited, PodStarted
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.running_batches import file_of, read_batches, read_in_hand

MODULES: Mapping[Service, str] = {
    Service.MASTER: "elasticdl.master.main",
    Service.PS: "elasticdl.ps.main",
    Service.WORKER: "elasticdl.worker.main",
}
"""What ``python -m`` runs for each service."""
_REFUSAL_LINES, _FAULT_LINES = 3, 8
"""How much of its log is told when a process ended so; a refusal is the last thing that it says."""
OUT_OF_MEMORY = "\nkilled by the kernel because memory ran out: use smaller minibatches, fewer workers or more ps"


class NoteEvent(Protocol):
    """Where events go: ``EventPublisher.note``."""

    def __call__(self, event: Event, cause: str = "") -> None:
        """Have an event appended to the log."""
        ...


class Preparation(Protocol):
    """Something that makes the start of a service's processes cheaper once it is done: ``ForkServer``."""

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for any more."""
        ...

    async def settle(self) -> None:
        """Wait until then."""
        ...


def service_command(service: Service) -> list[str]:
    """The command line of a service; all else is in its environment."""
    return [sys.executable, "-m", MODULES[service]]


class PodKeeper:
    """Keeps worker and ps processes; all methods on the loop's thread.

    Args:
        processes: the children.
        run: where their files are.
        environment: (pod, service) -> the environment to start it with.
        note: takes events for the log.
        command: the command line of a service.
        preparations: what the processes of a service wait for; their orders are answered meanwhile.
        oom_watch: tells which of them the kernel has killed.
    """

    def __init__(
        self,
        processes: Processes,
        run: RunDirectory,
        environment: Callable[[PodName, Service], Mapping[str, str]],
        note: NoteEvent,
        command: Callable[[Service], list[str]] = service_command,
        preparations: Mapping[Service, Preparation] | None = None,
        oom_watch: OomWatch | None = None,
    ) -> None:
        self._oom_watch = oom_watch or OomWatch()
        self._preparations = preparations or {}
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._processes = processes
        self._run = run
        self._environment = environment
        self._note = note
        self._command = command
        self._services: dict[str, Service] = {}
        self._dismissed: set[PodName] = set()

    async def obey(self, command: Command, cause: str) -> None:
        """Carry out an order; one that was carried out before changes nothing.

        Raises:
            PermanentError: it can't be carried out.
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
                self._note_never_started(pod, ExitCause.FINISHED, "")
            case StopPod(pod=pod, kill=kill):
                if not kill and self._processes.pid(pod):
                    self._dismissed.add(pod)
                self._processes.signal(pod, signal.SIGKILL if kill else signal.SIGTERM)
            case _:
                raise PermanentError(f"the launcher takes no {type(command).__name__}")

    def close(self) -> None:
        """Start nobody any more who is still waiting."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def exited(self, ended: Exit) -> None:
        """Report the end of a process that ``obey`` started."""
        service = self._services[ended.name]
        out_of_memory = self._oom_watch.has_killed(ended.name, ended.exit_code)
        cause = exit_cause(ended.exit_code, out_of_memory=out_of_memory)
        running_batches = file_of(self._run.running_batches / ended.name, ended.pid)
        held = read_in_hand(running_batches) if service is Service.WORKER else ()
        batches = read_batches(running_batches) if service is Service.WORKER else 0
        running_batches.unlink(missing_ok=True)
        self._note(
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
        preparation = self._preparations.get(service)
        return preparation is None or preparation.is_settled

    async def _start_when_prepared(self, pod: PodName, service: Service, cause: str) -> None:
        await self._preparations[service].settle()
        del self._waiting[pod]
        try:
            self._start(pod, service, cause)
        except PermanentError as error:  # The order was answered, so it can't be refused any more.
            self._note_never_started(pod, ExitCause.REFUSED, str(error))

    def _note_never_started(self, pod: PodName, cause: ExitCause, reason: str) -> None:
        """Report the beginning and the end of a life that there was no process of."""
        service = self._services[pod]
        self._note(PodStarted(pod=pod, service=service, pid=0))
        code = int(cause is not ExitCause.FINISHED)
        self._note(
            PodExited(pod=pod, service=service, pid=0, cause=cause, exit_code=code, running_batches=(), log_tail=reason)
        )

    def _start(self, pod: PodName, service: Service, cause: str) -> None:
        self._services[pod] = service
        pid, new = self._processes.start(
            pod,
            self._command(service),
            environment=self._environment(pod, service),
            log=self._run.log(pod),
            output=self._run.output(pod) if service is Service.WORKER else None,
        )
        if new:
            self._oom_watch.started(pod)
            if pod in self._dismissed:
                self._dismissed.discard(pod)
                self._processes.usage[pod].returns += 1
            self._note(PodStarted(pod=pod, service=service, pid=pid), cause=cause)


def _log_tail(log: Path, cause: ExitCause) -> str:
    match cause:
        case ExitCause.REFUSED:
            return last_word(log, _REFUSAL_LINES)
        case ExitCause.OWN_FAULT:
            return tail(log, _FAULT_LINES)
        case _:
            return ""
