"""What services need of a broker, named after the need; all methods belong to one asyncio loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import PodName, Purpose

OrderHandler = Callable[[Command, str], Awaitable[None]]
"""(command, cause) -> done. Raising an ElasticDLError refuses the order, with the error's text."""


class EventLog(Protocol):
    """A job's append-only log."""

    async def append(self, envelope: Envelope) -> int:
        """Add a fact; repeating it (same envelope id) changes nothing.

        Returns:
            The sequence number, once the broker has acknowledged it.

        Raises:
            TransientError: the broker stayed away longer than the settings allow.
            PermanentError: the log is full or gone.
        """
        ...

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Add a fact as the record right after another one, or not at all.

        Args:
            envelope: the fact.
            after: sequence number of the last record that the writer knows of (0: the log is empty).

        Returns:
            The sequence number, also when only the acknowledgement of an earlier try was lost.

        Raises:
            FencedError: the log goes on otherwise.
            TransientError: the broker stayed away longer than the settings allow.
            PermanentError: the log is full or gone.
        """
        ...

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Add a record of the master, unless another master has added one since.

        Args:
            envelope: what was decided.
            after: sequence number of the last decision that this master knows of (0: none).

        Returns:
            The sequence number, also when only the acknowledgement of an earlier try was lost.

        Raises:
            FencedError: another master has decided something meanwhile.
            TransientError: the broker stayed away longer than the settings allow.
            PermanentError: the log is full or gone.
        """
        ...

    def read(self, after: int) -> AsyncIterator[LogRecord]:
        """All records with a sequence number above ``after``, then new ones for ever, in order and without gaps.

        Raises:
            PermanentError: the log, or a part of it that is still to be read, is gone.
            ProtocolError: a record that this version can't read.
        """
        ...

    async def last_seq(self) -> int:
        """Sequence number of the last record; 0 for an empty log."""
        ...

    async def last_fenced(self) -> LogRecord | None:
        """The last record that a master added with ``append_fenced``."""
        ...


class Delivery(Protocol):
    """A task that was given to this client, until it is acknowledged, given back or its lease runs out."""

    @property
    def task(self) -> TaskMessage:
        """What is to be done."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first delivery of this dispatch."""
        ...

    @property
    def reply(self) -> str:
        """Where anybody may give the delivery back (``TaskQueue.give_back``)."""
        ...

    async def ack(self) -> None:
        """It is done; returns when the broker has confirmed that it forgot the task.

        Raises:
            TransientError: the broker stayed away longer than the settings allow; the task will be delivered again.
        """
        ...

    async def nak(self) -> None:
        """Give it back unfinished: it is delivered again at once."""
        ...

    async def extend(self) -> None:
        """Begin a new lease. Lost without notice when the broker is away."""
        ...


class TaskQueue(Protocol):
    """Tasks on their way from the master to the workers."""

    async def publish(self, messages: Sequence[tuple[TaskMessage, bool]]) -> None:
        """Queue tasks, each with whether it is dispatched *again* (before all others), and wake idle workers.

        Raises:
            TransientError: the broker stayed away longer than the settings allow.
            PermanentError: the queue is full or gone.
        """
        ...

    async def take(self, purposes: Sequence[Purpose]) -> Delivery | None:
        """A task of the first purpose that has one, those dispatched again first; None if there is none now.

        Raises:
            TransientError: the broker is away.
        """
        ...

    async def wait(self, timeout_s: float) -> None:
        """Return when there may be tasks that the last ``take`` did not see, or after ``timeout_s``."""
        ...

    async def give_back(self, reply: str) -> None:
        """Give back another client's delivery; too late for it is harmless.

        Raises:
            TransientError: the broker stayed away longer than the settings allow.
        """
        ...

    async def purge(self) -> None:
        """Forget all tasks, delivered ones too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueEntry:
    """What a register holds.

    Attributes:
        value: the bytes.
        seq: number to name when replacing it.
    """

    value: bytes
    seq: int


class KeyValue(Protocol):
    """Named values of which only the last counts; a writer that does not know the last one is refused."""

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value, if there is any.

        Raises:
            TransientError: the broker stayed away longer than the settings allow.
        """
        ...

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value.

        Args:
            name: name of a ps, ``subjects.PLACEMENT`` or ``subjects.RING``; of a service, where core snapshots are
                kept.
            value: the new value.
            after: ``seq`` of the entry to replace (0: there is none yet).

        Returns:
            The new entry's ``seq``.

        Raises:
            FencedError: somebody else has written meanwhile.
            TransientError: the broker stayed away longer than the settings allow.
        """
        ...

    def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        """All present values, then changes for ever; a value may be skipped when it is replaced quickly."""
        ...


class Signals(Protocol):
    """Messages that are not stored."""

    async def beat(self, beat: Beat) -> None:
        """Say that this process lives; dropped when the broker is away."""
        ...

    def beats(self) -> AsyncIterator[Beat]:
        """Heartbeats of all processes of the job from now on; malformed ones are logged and skipped."""
        ...

    async def order(self, pod: PodName, command: Command, cause: str, *, term: int = 0) -> None:
        """Have a process do something; returns when it says that it did, or has begun to.

        Args:
            pod: who.
            command: what.
            cause: id of what led to it, for the log.
            term: of the master that sends it; whoever has obeyed a later one refuses.

        Raises:
            TransientError: it does not listen, or did not answer in time.
            PermanentError: it refused.
        """
        ...

    async def serve_orders(self, pod: PodName, handler: OrderHandler) -> None:
        """Take orders under this name from now on, one after the other; returns when listening."""
        ...


class Bus(Protocol):
    """One client's connection to the broker."""

    @property
    def log(self) -> EventLog:
        """The event log."""
        ...

    @property
    def tasks(self) -> TaskQueue:
        """The task queue."""
        ...

    @property
    def registers(self) -> KeyValue:
        """The registers."""
        ...

    @property
    def core_snapshots(self) -> KeyValue:
        """The core snapshots, by the name of the service."""
        ...

    @property
    def signals(self) -> Signals:
        """Messages that are not stored."""
        ...

    async def close(self) -> None:
        """Hang up; iterators end."""
        ...
