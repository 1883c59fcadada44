"""The ``Pods`` of one machine: each pod is a process of the launcher."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.children import ChildProcesses, Exit
from elasticdl.cli.local.processes.imports import service_command
from elasticdl.cli.local.processes.logs import tail
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pod_instances import instance_of
from elasticdl.shared.pods.causes import OUT_OF_MEMORY, classify_exit
from elasticdl.shared.pods.log_lines import explaining_lines
from elasticdl.shared.pods.ports import Ended, Pending, PodStatus, Running
from elasticdl.shared.pods.table import PodTable
from elasticdl.shared.process.oom_watch import OomWatch
from elasticdl.shared.process.running_batches import WorkerTraces, file_of

IMPORTING = "its Python modules are being imported"


class Preparation(Protocol):
    """Something that has to finish before the processes of a service start: ``ForkServer``."""

    @property
    def is_settled(self) -> bool:
        """Whether it has finished, successfully or not."""
        ...

    async def settle(self) -> None:
        """Wait until it has finished."""
        ...


class LocalPods:
    """See ``Pods``; all methods are called on the loop's thread.

    Args:
        preparations: what the processes of a service wait for; their pods are pending until then.
    """

    def __init__(
        self,
        processes: ChildProcesses,
        run: RunDirectory,
        environment: Callable[[PodName, Service], Mapping[str, str]],
        command: Callable[[Service], list[str]] = service_command,
        preparations: Mapping[Service, Preparation] = MappingProxyType({}),
        oom_watch: OomWatch | None = None,
    ) -> None:
        self._processes = processes
        self._run = run
        self._environment = environment
        self._command = command
        self._preparations = preparations
        self._oom_watch = oom_watch or OomWatch()
        self._stopped: set[PodName] = set()
        """Pods whose process was stopped in order, so that its next start is no restart."""
        self._table = PodTable()
        self._waiting: dict[PodName, asyncio.Task[None]] = {}
        self._deleted: set[PodInstance] = set()

    async def create(
        self,
        pod: PodName,
        service: Service,
        creation_seq: int,
        *,
        is_spare: bool = False,  # noqa: ARG002  There are no priorities here.
    ) -> PodStatus:
        """See ``Pods.create``."""
        latest = self._table.get(pod)
        if latest and not self._table.admits(pod, creation_seq):
            return latest
        preparation = self._preparations.get(service)
        if preparation is None or preparation.is_settled:
            return self._start(pod, service, creation_seq)
        pending = PodStatus(pod=pod, service=service, creation_seq=creation_seq, phase=Pending(reason=IMPORTING))
        self._table.set(pending)
        self._waiting[pod] = asyncio.create_task(self._start_when_prepared(pending, preparation))
        return pending

    async def delete(self, pod: PodName, instance: PodInstance, before_seq: int, *, kill: bool) -> None:
        """See ``Pods.delete``."""
        status = self._table.to_delete(pod, instance, before_seq)
        if status and pod in self._waiting:
            self._waiting.pop(pod).cancel()
            self._table.set(replace(status, phase=Ended(cause=ExitCause.STOPPED)))
        elif status:
            self._deleted.add(status.instance)
            if not kill and self._processes.pid(pod):
                self._stopped.add(pod)
            self._processes.signal(pod, signal.SIGKILL if kill else signal.SIGTERM)

    async def list(self) -> Sequence[PodStatus]:
        """See ``Pods.list``."""
        return self._table.list()

    def watch(self) -> AsyncIterator[PodStatus]:
        """See ``Pods.watch``."""
        return self._table.watch()

    def close(self) -> None:
        """Cancel all starts that wait for a preparation."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

    def on_exit(self, ended: Exit) -> None:
        """The process of a pod has ended."""
        status = self._table.get(PodName(ended.name))
        assert status
        reason = OUT_OF_MEMORY if self._oom_watch.has_killed(ended.name, ended.exit_code) else ""
        cause = classify_exit(ended.exit_code, reason, is_deleted=status.instance in self._deleted)
        self._deleted.discard(status.instance)
        traces = self._traces(ended) if status.service is Service.WORKER else WorkerTraces()
        phase = Ended(
            cause=cause,
            exit_code=ended.exit_code,
            log_tail=explaining_lines(tail(self._run.log(ended.name)).splitlines(), cause),
            running_batches=traces.running_batches,
            batches=traces.batches,
        )
        self._table.set(replace(status, phase=phase))

    async def _start_when_prepared(self, pending: PodStatus, preparation: Preparation) -> None:
        await preparation.settle()
        del self._waiting[pending.pod]
        try:
            self._start(pending.pod, pending.service, pending.creation_seq)
        except PermanentError as error:
            ended = Ended(cause=ExitCause.REFUSED, exit_code=1, log_tail=str(error))
            self._table.set(replace(pending, phase=ended))

    def _start(self, pod: PodName, service: Service, creation_seq: int) -> PodStatus:
        pid = self._processes.start(
            pod,
            self._command(service),
            environment=self._environment(pod, service),
            log=self._run.log(pod),
            output=self._run.output(pod) if service is Service.WORKER else None,
        )
        self._oom_watch.started(pod)
        if pod in self._stopped:
            self._stopped.discard(pod)
            self._processes.usage[pod].ordered_stops += 1
        instance = _instance_of(pid)
        status = PodStatus(pod=pod, service=service, creation_seq=creation_seq, phase=Running(), instance=instance)
        self._table.set(status)
        return status

    def _traces(self, ended: Exit) -> WorkerTraces:
        """What a worker left; read once."""
        file = file_of(self._run.running_batches / ended.name, ended.pid)
        traces = WorkerTraces.read(file)
        file.unlink(missing_ok=True)
        return traces


def _instance_of(pid: int) -> PodInstance:
    """The instance of a child, which may have ended already."""
    try:
        return instance_of(pid)
    except ProcessLookupError:
        return PodInstance(f"{pid}-ended at once")
