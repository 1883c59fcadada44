"""The pods that an adapter within this process keeps: which commands change something, and what watchers see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from elasticdl.shared.errors import TransientError
from elasticdl.shared.names import PodInstance, PodName
from elasticdl.shared.pods.ports import Ended, PodStatus


class PodTable:
    """The latest pod of every name, and its changes for one watcher."""

    def __init__(self) -> None:
        self._pods: dict[PodName, PodStatus] = {}
        self._changes: asyncio.Queue[PodStatus | TransientError] = asyncio.Queue()

    def get(self, pod: PodName) -> PodStatus | None:
        """The latest pod of a name."""
        return self._pods.get(pod)

    def admits(self, pod: PodName, creation_seq: int) -> bool:
        """Whether a command creates a pod, see ``Pods.create``."""
        latest = self._pods.get(pod)
        return latest is None or (isinstance(latest.phase, Ended) and latest.creation_seq < creation_seq)

    def to_delete(self, pod: PodName, instance: PodInstance, before_seq: int) -> PodStatus | None:
        """The pod that a command ends, see ``Pods.delete``."""
        latest = self._pods.get(pod)
        if latest is None or isinstance(latest.phase, Ended):
            return None
        is_meant = latest.instance == instance if instance else latest.creation_seq < before_seq
        return latest if is_meant else None

    def set(self, status: PodStatus) -> None:
        """Record a change and tell the watcher."""
        self._pods[status.pod] = status
        self.announce(status)

    def remove(self, pod: PodName) -> None:
        """Forget a pod; the watcher is not told."""
        self._pods.pop(pod, None)

    def announce(self, status: PodStatus) -> None:
        """Tell the watcher about a status, whatever the table holds."""
        self._changes.put_nowait(status)

    def list(self) -> Sequence[PodStatus]:
        """See ``Pods.list``."""
        self.break_watch("another list has replaced this watch")
        self._changes = asyncio.Queue()
        return tuple(self._pods.values())

    async def watch(self) -> AsyncIterator[PodStatus]:
        """See ``Pods.watch``."""
        changes = self._changes
        while True:
            change = await changes.get()
            if isinstance(change, TransientError):
                raise change
            yield change

    def break_watch(self, reason: str) -> None:
        """End the present watch, if there is one."""
        self._changes.put_nowait(TransientError(reason, retry_after_s=0.0))
