"""The ports to the broker, named after what services need; call all methods on one asyncio loop.

Every method may raise ``TransientError`` (NATS was unreachable for longer than the settings allow) or
``PermanentError`` (the server refuses, or the stream is full or gone).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import Envelope, LogRecord, MessageUnreadable
from elasticdl.shared.names import PodName, Purpose

OrderHandler = Callable[[Command, str], Awaitable[None]]
StopServing = Callable[[], Awaitable[None]]
"""Ends the receipt of orders."""
"""(command, cause) -> done. An ElasticDLError that it raises refuses the order, with the error's text."""


EVENTS_AT_ONCE_MAX = 64
"""Most events that are appended at once: readers wait for a late event during at most this many others."""


class LogReader(Protocol):
    """A job's log, for readers."""

    def read(self, after: int, decode: Decode = codec.decode_envelope, until: int = 0) -> AsyncIterator[LogRecord]:
        """All records with a sequence number above ``after``, then new ones as they arrive; in order, without gaps.

        Args:
            decode: of readers who need few fields, see ``codec.envelope_decoder``; with ``service``.
            until: number of a record of the log after which reading ends; 0: it never ends.

        Raises:
            PermanentError: the log, or a part of it that is still to be read, is gone.

        A record that this version can't read has the event ``MessageUnreadable``.
        """
        ...

    async def last_seq(self) -> int:
        """Sequence number of the last record; 0 for an empty log."""
        ...


@runtime_checkable
class EncodedLog(Protocol):
    """A log that can be read faster without decoding it."""

    def encoded(self, after: int, until: int) -> AsyncIterator[Sequence[bytes]]:
        """The records above ``after`` until a present one, some at a time: see ``whole_record``. Raises as ``read``."""
        ...


class EventLog(LogReader, Protocol):
    """A job's append-only log."""

    async def append(self, envelope: Envelope) -> int:
        """Append an event; a repetition (same envelope id) changes nothing. Returns the stored sequence number."""
        ...

    async def append_all(self, envelopes: Sequence[Envelope]) -> None:
        """Append at most ``EVENTS_AT_ONCE_MAX`` events without waiting for each; in any order."""
        ...

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Append an event as the record right after another one, or not at all.

        Args:
            after: sequence number of the last record that the writer knows (0: the log is empty).

        Returns:
            The sequence number, also when only the acknowledgement of an earlier try was lost.

        Raises:
            FencedError: the log has other records after that one.
        """
        ...

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Append a record of the master, unless another master has appended one since.

        Args:
            after: sequence number of the last record of a master that this master knows (0: none).

        Returns:
            The sequence number, also when only the acknowledgement of an earlier try was lost.

        Raises:
            FencedError: another master has added a record since.
        """
        ...

    async def last_fenced(self) -> LogRecord | None:
        """The last record that a master added with ``append_fenced``."""
        ...


class Delivery(Protocol):
    """A task that this client has leased, until it is acknowledged, returned, or its lease expires."""

    @property
    def task(self) -> TaskMessage:
        """The task."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first delivery of this dispatch."""
        ...

    @property
    def again(self) -> bool:
        """Whether the task was dispatched *again*."""
        ...

    @property
    def reply(self) -> str:
        """What any client may return the delivery with (``TaskQueue.give_back``)."""
        ...

    async def ack(self) -> None:
        """Acknowledge the task. That of a training task may be lost with the connection: it is delivered again."""
        ...

    async def nak(self) -> None:
        """Return it unfinished: it is delivered again at once."""
        ...

    async def extend(self) -> None:
        """Renew the lease. Has no effect while NATS is unreachable."""
        ...

    async def put_aside(self, reason: str) -> None:
        """Remove the task from the queue, because it can't be executed, and note it in ``TaskQueue.unreadable``.

        Raises:
            TransientError: NATS is unreachable; the task is delivered again.
        """
        ...


class TaskQueue(Protocol):
    """The queue of tasks from the master to the workers."""

    @property
    def unreadable(self) -> list[MessageUnreadable]:
        """The messages that this client has removed from the queue because it can't read them; empty it."""
        ...

    async def publish(self, messages: Sequence[tuple[TaskMessage, bool]]) -> None:
        """Queue tasks, each with whether it is dispatched *again* (before all others), and wake idle workers."""
        ...

    async def take(self, purposes: Sequence[Purpose]) -> Delivery | None:
        """A task of the first purpose that has one, those dispatched again first; None if no task waits.

        A purpose that had no task a moment ago may come after the others.
        """
        ...

    async def take_several(self, purposes: Sequence[Purpose], count: int) -> Sequence[Delivery]:
        """Like ``take``, but up to ``count`` tasks if the first one is a training task."""
        ...

    async def wait(self, timeout_s: float) -> None:
        """Return when there may be tasks that the last ``take`` did not see, or after ``timeout_s``."""
        ...

    async def give_back(self, reply: str) -> None:
        """Return a delivery of another client to the queue; harmless when the delivery has ended."""
        ...

    async def last_seq(self) -> int:
        """Number of the task that was queued last; 0 before the first one."""
        ...

    async def purge(self, up_to: int) -> None:
        """Remove all tasks up to a number, leased ones too. Later ones stay, however late this request arrives.

        Read ``last_seq`` first and then check that no run has begun: its tasks have higher numbers.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueEntry:
    """The value of a register; ``seq``: number that a writer names when it replaces the value."""

    value: bytes
    seq: int


class KeyValue(Protocol):
    """Named registers that keep their last value; a writer that does not know the last value is refused."""

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value, if any."""
        ...

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value.

        Args:
            name: name of a ps, ``subjects.PLACEMENT`` or ``subjects.RING``; ``NAME.PART`` lies below ``NAME``.
            after: ``seq`` of the entry to replace (0 if absent).

        Returns:
            The new entry's ``seq``.

        Raises:
            FencedError: another client has written since.
        """
        ...

    def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        """All present values, then changes as they arrive; a value that is replaced quickly may be skipped."""
        ...

    async def remove_below(self, name: str, *, before: int) -> None:
        """Remove all values below a name (``NAME.PART``) that are older than the entry numbered ``before``."""
        ...


class ValueReader(Protocol):
    """Named registers, for readers."""

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value, if any: a whole one, also while another process replaces it. Empty if a part is lost."""
        ...


class LargeValues(ValueReader, Protocol):
    """Named registers whose values may be larger than a message."""

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value as a whole. Former ones are removed; arguments and errors as of ``KeyValue.write``."""
        ...


class StoredStates(Protocol):
    """Large metric states, each kept until it is removed. No event contains them: events name their numbers."""

    async def append(self, group: str, part: bytes) -> int:
        """Store a part of metric states. Returns its number, unique in the job, once the broker has acknowledged it."""
        ...

    async def read(self, number: int) -> bytes | None:
        """A part; None: it was removed or lost."""
        ...

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove parts by number; those that are gone don't matter. Errors as ``read``."""
        ...

    async def remove_group(self, group: str) -> None:
        """Remove all parts of a group. Errors as ``read``."""
        ...


class Signals(Protocol):
    """Messages that are not stored."""

    async def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat; dropped while NATS is unreachable."""
        ...

    def heartbeats(self) -> AsyncIterator[Heartbeat]:
        """Heartbeats of all processes of the job from now on; malformed ones are logged and skipped."""
        ...

    async def order(self, pod: PodName, command: Command, cause: str, *, term: int = 0) -> None:
        """Send a command to a process; returns when the process has run it, or has begun to.

        Args:
            term: term of the master that sends it; a process that has obeyed a later term refuses.

        Raises:
            TransientError: the process is not reachable, or did not answer in time.
            PermanentError: the process refused.
        """
        ...

    async def serve_orders(self, pod: PodName, handler: OrderHandler) -> StopServing:
        """Receive orders under this name from now on, one after the other; returns once subscribed.

        Returns:
            A function that ends it; the end of the connection does, too.
        """
        ...


class JobReader(Protocol):
    """What can be read of a job, from the broker or from a file."""

    @property
    def log(self) -> LogReader:
        """The event log."""
        ...

    @property
    def core_snapshots(self) -> ValueReader:
        """The core snapshots, by the name of the service."""
        ...


class Bus(JobReader, Protocol):
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
    def core_snapshots(self) -> LargeValues:
        """The core snapshots, by the name of the service."""
        ...

    @property
    def stored_states(self) -> StoredStates:
        """Large metric states."""
        ...

    @property
    def signals(self) -> Signals:
        """Messages that are not stored."""
        ...

    async def rebuild(self) -> None:
        """Remove everything that the broker has stored of the job. No process of the job may run."""
        ...

    async def close(self) -> None:
        """Close the connection; iterators end."""
        ...
