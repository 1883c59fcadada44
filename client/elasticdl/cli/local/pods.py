"""The ``Pods`` of one machine: each pod is a process of the launcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from elasticdl.cli.local.exits import Exit
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.events import ExitCause, RunningBatch
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pods.causes import OUT_OF_MEMORY, classify_exit
from elasticdl.shared.pods.ports import Ended, Pending, PodStatus, Running
from elasticdl.shared.pods.table import PodTable

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

    def start(self, pod: PodName, service: Service) -> PodInstance:
        """Start the process of a pod.

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
    """See ``Pods``; all methods are called on the loop's thread.

    Args:
        preparations: what the processes of a service wait for; their pods are pending until then.
    """

    def __init__(self, processes: PodProcesses, preparations: Mapping[Service, Preparation] | None = None) -> None:
        self._processes = processes
        self._preparations = preparations or {}
        self._table = PodTable()
        self._waiting: dict[PodName, asyncio.Task[None]] = {}
        self._deleted: set[PodInstance] = set()

    async def create(self, pod: PodName, service: Service, creation_seq: int) -> PodStatus:
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
            self._processes.stop(pod, kill=kill)

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
        traces = self._processes.traces(ended, status.service)
        reason = OUT_OF_MEMORY if traces.is_out_of_memory else ""
        cause = classify_exit(ended.exit_code, reason, is_deleted=status.instance in self._deleted)
        self._deleted.discard(status.instance)
        phase = Ended(
            cause=cause,
            exit_code=ended.exit_code,
            log_tail=self._processes.log_tail(ended.name, cause),
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
        instance = self._processes.start(pod, service)
        status = PodStatus(pod=pod, service=service, creation_seq=creation_seq, phase=Running(), instance=instance)
        self._table.set(status)
        return status
