"""The processes of pods on this machine: how each is started, and what it leaves in the run directory."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.exits import Exit
from elasticdl.cli.local.pods import ExitTraces
from elasticdl.cli.local.processes.children import ChildProcesses
from elasticdl.cli.local.processes.imports import service_command
from elasticdl.cli.local.processes.logs import tail
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pod_instances import instance_of
from elasticdl.shared.pods.log_lines import explaining_lines
from elasticdl.shared.process.oom_watch import OomWatch
from elasticdl.shared.process.running_batches import WorkerTraces, file_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """How the processes of pods are started.

    Attributes:
        oom_watch: detects out-of-memory kills.
    """

    environment: Callable[[PodName, Service], Mapping[str, str]]
    command: Callable[[Service], list[str]] = service_command
    oom_watch: OomWatch = field(default_factory=OomWatch)


class ServiceProcesses:
    """See ``PodProcesses``."""

    def __init__(self, children: ChildProcesses, run: RunDirectory, settings: ProcessSettings) -> None:
        self._children = children
        self._run = run
        self._settings = settings
        self._stopped: set[PodName] = set()

    def start(self, pod: PodName, service: Service) -> PodInstance:
        """See ``PodProcesses``."""
        pid, _ = self._children.start(
            pod,
            self._settings.command(service),
            environment=self._settings.environment(pod, service),
            log=self._run.log(pod),
            output=self._run.output(pod) if service is Service.WORKER else None,
        )
        self._settings.oom_watch.started(pod)
        if pod in self._stopped:
            self._stopped.discard(pod)
            self._children.usage[pod].ordered_stops += 1
        return _instance_of(pid)

    def stop(self, pod: PodName, *, kill: bool) -> None:
        """See ``PodProcesses``."""
        if not kill and self._children.pid(pod):
            self._stopped.add(pod)
        self._children.signal(pod, signal.SIGKILL if kill else signal.SIGTERM)

    def traces(self, ended: Exit, service: Service) -> ExitTraces:
        """See ``PodProcesses``."""
        is_out_of_memory = self._settings.oom_watch.has_killed(ended.name, ended.exit_code)
        file = file_of(self._run.running_batches / ended.name, ended.pid)
        if service is not Service.WORKER:
            return ExitTraces(is_out_of_memory=is_out_of_memory)
        traces = WorkerTraces.read(file)
        file.unlink(missing_ok=True)
        return ExitTraces(
            is_out_of_memory=is_out_of_memory, running_batches=traces.running_batches, batches=traces.batches
        )

    def log_tail(self, pod: str, cause: ExitCause) -> str:
        """See ``PodProcesses``."""
        return explaining_lines(tail(self._run.log(pod)).splitlines(), cause)


def _instance_of(pid: int) -> PodInstance:
    """The instance of a child, which may have ended already."""
    try:
        return instance_of(pid)
    except ProcessLookupError:
        return PodInstance(f"{pid}-ended at once")
