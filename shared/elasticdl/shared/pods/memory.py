"""Pods in memory: a platform for tests and simulations that does what a script says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Protocol

from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pods.causes import classify_exit
from elasticdl.shared.pods.ports import Ended, Pending, Phase, Pods, PodStatus, Running
from elasticdl.shared.pods.table import PodTable


class Node(Protocol):
    """Runs the processes of pods; it answers by calling ``MemoryPods.run`` and ``MemoryPods.exit``."""

    def start(self, pod: PodName, service: Service) -> None:
        """Start the process of a pod that was created."""
        ...

    def stop(self, pod: PodName, *, kill: bool) -> None:
        """End the process of a pod that is deleted, at once or with SIGTERM."""
        ...


class MemoryPods:
    """A ``Pods`` whose pods do what the methods below say.

    Args:
        node: is told which processes to start and to stop; None: nothing happens by itself.
    """

    def __init__(self, node: Node | None = None) -> None:
        self._node = node
        self._table = PodTable()
        self._tables = [self._table]
        """What each watcher sees, the own one first."""
        self._deleted: set[PodName] = set()
        self._is_available = True
        self._history: dict[PodName, list[PodStatus]] = {}

    async def create(
        self,
        pod: PodName,
        service: Service,
        creation_seq: int,
        *,
        is_spare: bool = False,  # noqa: ARG002  There are no priorities here.
    ) -> PodStatus:
        """See ``Pods.create``."""
        self._check_available()
        if self._table.admits(pod, creation_seq):
            self._deleted.discard(pod)
            self._set(PodStatus(pod=pod, service=service, creation_seq=creation_seq, phase=Pending(reason="")))
            if self._node:
                self._node.start(pod, service)
        return self._latest(pod)

    async def delete(self, pod: PodName, instance: PodInstance, before_seq: int, *, kill: bool) -> None:
        """See ``Pods.delete``."""
        self._check_available()
        status = self._table.to_delete(pod, instance, before_seq)
        if status is None:
            return
        self._deleted.add(pod)
        if isinstance(status.phase, Pending):
            self.end(pod, Ended(cause=ExitCause.STOPPED))
        elif self._node:
            self._node.stop(pod, kill=kill)

    async def list(self) -> Sequence[PodStatus]:
        """See ``Pods.list``."""
        return self.list_of(self._table)

    def watch(self) -> AsyncIterator[PodStatus]:
        """See ``Pods.watch``."""
        return self._table.watch()

    def view(self) -> Pods:
        """The same pods for a watcher of its own: another master, which may run beside the former one."""
        table = PodTable()
        for status in self._table.list():
            table.set(status)
        self._tables.append(table)
        return _View(self, table)

    # --- the script -------------------------------------------------------------------------------------------------

    def pend(self, pod: PodName, reason: str) -> None:
        """A pod that has not started can't start yet."""
        self._change(pod, Pending(reason=reason))

    def run(self, pod: PodName, instance: PodInstance) -> None:
        """The process of a pod starts."""
        self._set(replace(self._latest(pod), phase=Running(), instance=instance))

    def exit(self, pod: PodName, exit_code: int, reason: str = "", *, traces: Ended | None = None) -> None:
        """The process of a pod ends."""
        cause = classify_exit(exit_code, reason, is_deleted=pod in self._deleted)
        self.end(pod, replace(traces or Ended(cause=cause), cause=cause, exit_code=exit_code))

    def end(self, pod: PodName, ended: Ended) -> None:
        """A pod ends."""
        self._change(pod, ended)

    def vanish(self, pod: PodName) -> None:
        """The node of a pod is lost; the pod's exit is not reported."""
        for table in self._tables:
            table.remove(pod)
        self.break_watch()

    def repeat(self, pod: PodName) -> None:
        """All changes of all pods of a name are announced once more, late ones first."""
        for status in self._history.get(pod, ()):
            for table in self._tables:
                table.announce(status)

    def break_watch(self) -> None:
        """The connection of the watcher breaks; it misses changes until it lists again."""
        for table in self._tables:
            table.break_watch("the watch has ended")

    def disconnect(self) -> None:
        """The platform can't be reached until ``reconnect``."""
        self._is_available = False
        self.break_watch()

    def reconnect(self) -> None:
        """The platform can be reached again."""
        self._is_available = True

    def get(self, pod: PodName) -> PodStatus | None:
        """The latest pod of a name."""
        return self._table.get(pod)

    def list_of(self, table: PodTable) -> Sequence[PodStatus]:
        """The list of one watcher."""
        self._check_available()
        return table.list()

    def _check_available(self) -> None:
        if not self._is_available:
            raise TransientError("the platform can't be reached")

    def _latest(self, pod: PodName) -> PodStatus:
        status = self._table.get(pod)
        if status is None:
            raise LookupError(f"{pod} was not created")
        return status

    def _change(self, pod: PodName, phase: Phase) -> None:
        self._set(replace(self._latest(pod), phase=phase))

    def _set(self, status: PodStatus) -> None:
        self._history.setdefault(status.pod, []).append(status)
        for table in self._tables:
            table.set(status)


class _View:
    """See ``MemoryPods.view``."""

    def __init__(self, pods: MemoryPods, table: PodTable) -> None:
        self._table = table
        self._pods = pods
        self.create = pods.create
        self.delete = pods.delete

    async def list(self) -> Sequence[PodStatus]:
        return self._pods.list_of(self._table)

    def watch(self) -> AsyncIterator[PodStatus]:
        return self._table.watch()
