"""The port ``Pods``: creates, deletes and watches the pods of one job on some platform."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticdl.shared.messages.events import ExitCause, RunningBatch
from elasticdl.shared.names import NO_INSTANCE, PodInstance, PodName, Service

EARLY_SEQ = 0
"""``creation_seq`` of a pod that was created together with its job, before its master. The first command for its name
takes it over instead of creating another one, unless it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The pod has no process yet; ``reason``: why, for people; empty: it was just created."""

    reason: str
    limit_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The pod's process runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The pod has ended for good.

    Attributes:
        cause: why, see ``causes.py``.
        exit_code: of its process, or minus the number of the signal that ended it; 0 if it is unknown.
        log_tail: the last lines of its log, for own faults and refusals.
        running_batches: worker: the batches that it was reading, feeding or computing.
        batches: worker: how many batches it had computed, repeated ones too.
        memory_limit_bytes, next_memory_limit_bytes: as in ``PodExited``.
    """

    cause: ExitCause
    exit_code: int = 0
    log_tail: str = ""
    running_batches: tuple[RunningBatch, ...] = ()
    batches: int = 0
    memory_limit_bytes: int = 0
    next_memory_limit_bytes: int = 0


Phase = Pending | Running | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStatus:
    """A pod at one moment.

    Attributes:
        creation_seq: position in the log of the decision that created it, or ``EARLY_SEQ``. Later pods of the same name
            have higher ones.
        phase: its phase. It never returns to an earlier one.
        instance: which of the pods of this name it is. It is empty or changes only while the pod is pending.
    """

    pod: PodName
    service: Service
    creation_seq: int
    phase: Phase
    instance: PodInstance = NO_INSTANCE


class Pods(Protocol):
    """The pods of one job. A name has at most one pod that has not ended.

    Every method may raise ``TransientError`` (the platform is unavailable) or ``PermanentError`` (it refuses).
    """

    async def create(self, pod: PodName, service: Service, creation_seq: int, *, is_spare: bool = False) -> PodStatus:
        """Create a pod, unless this decision or a later one has done so, or a pod of this name has not ended.

        Args:
            creation_seq: position of the master's decision in the log.
            is_spare: others may take its room first, where the platform knows priorities.

        Returns:
            The latest pod of this name.

        Raises:
            TransientError: the platform is unavailable or has no quota left; try again.
        """
        ...

    async def delete(self, pod: PodName, instance: PodInstance, before_seq: int, *, kill: bool) -> None:
        """End a pod; if it has ended, nothing happens.

        Args:
            instance: which one, and no later one of this name; empty: one with a ``creation_seq`` below ``before_seq``.
            before_seq: position of the master's decision in the log.
            kill: end it at once; otherwise it gets the grace period.
        """
        ...

    async def list(self) -> Sequence[PodStatus]:
        """The latest pod of every name, ended ones included."""
        ...

    def watch(self) -> AsyncIterator[PodStatus]:
        """Changes since the last ``list``, perhaps repeated or late. There is one watcher at a time.

        Raises:
            TransientError: changes were lost: list again.
        """
        ...
