"""The broker's state and what it does with requests: as nats-server does, with its guarantees and no others."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import Purpose, Service

Lane = tuple[Purpose, bool]
"""One subject: purpose, dispatched again."""


class WrongLastSequenceError(Exception):
    """The writer does not know the last record of the subject."""


class Log:
    """The EVENTS stream. Dedupe is rebuilt from the stored records at a restart, so it forgets nothing."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.last_fenced = 0
        self._ids: dict[str, int] = {}

    def append(self, envelope: Envelope, after: int | None = None) -> int:
        """Store a record; ``after``: what the writer believes to be the last one of the masters."""
        if after is not None:
            self.check_expected(after)
        known = self._ids.get(envelope.id)
        if known is not None:
            return known
        seq = len(self.records) + 1
        self.records.append(LogRecord(seq=seq, envelope=envelope))
        self._ids[envelope.id] = seq
        if after is not None:
            self.last_fenced = seq
        return seq

    def append_next(self, envelope: Envelope, after: int) -> int:
        """Store a record right after another one (expected-last-sequence)."""
        if after != len(self.records):
            raise WrongLastSequenceError
        return self.append(envelope)

    def cut(self, length: int) -> None:
        """Only the first so many records are left."""
        del self.records[length:]
        self._ids = {record.envelope.id: record.seq for record in self.records}
        masters = (r.seq for r in self.records if r.envelope.service is Service.MASTER)
        self.last_fenced = max(masters, default=0)

    def check_expected(self, after: int) -> None:
        """Fencing of masters: expected-last-subject-sequence."""
        if after != self.last_fenced:
            raise WrongLastSequenceError


@dataclass(slots=True, kw_only=True)
class Queued:
    """A task on the queue."""

    number: int
    lane: Lane
    task: TaskMessage
    attempt: int = 0
    lease_ends_s: float = 0.0


@dataclass(slots=True)
class Tasks:
    """The TASKS stream: a work queue with leases."""

    clock: Callable[[], float]
    lease_s: float
    delivered: dict[int, Queued] = field(default_factory=dict)
    waiting: defaultdict[Lane, deque[Queued]] = field(default_factory=lambda: defaultdict(deque))
    ids: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def publish(self, task: TaskMessage, again: bool) -> None:
        """Queue a task; a repetition within the dedupe window is ignored."""
        if task.message_id in self.ids:
            return
        self.count += 1
        self.ids[task.message_id] = self.count
        lane = (task.task.purpose, again)
        self.waiting[lane].append(Queued(number=self.count, lane=lane, task=task))

    def take(self, purposes: tuple[Purpose, ...]) -> Queued | None:
        """The next task, under a new lease."""
        self._expire()
        for purpose in purposes:
            for again in (True, False):
                lane = self.waiting[purpose, again]
                if lane:
                    queued = lane.popleft()
                    queued.attempt += 1
                    queued.lease_ends_s = self.clock() + self.lease_s
                    self.delivered[queued.number] = queued
                    return queued
        return None

    def acknowledge(self, number: int) -> None:
        """Forget a task, whichever attempt says so."""
        queued = self.delivered.pop(number, None)
        if queued is None:
            for lane in self.waiting.values():
                for waiting in [each for each in lane if each.number == number]:
                    lane.remove(waiting)

    def give_back(self, number: int) -> None:
        """Deliver a task again, before those that wait."""
        queued = self.delivered.pop(number, None)
        if queued is not None:
            self.waiting[queued.lane].appendleft(queued)

    def extend(self, number: int) -> None:
        """A new lease."""
        if number in self.delivered:
            self.delivered[number].lease_ends_s = self.clock() + self.lease_s

    def purge(self, last: int) -> None:
        """Forget all tasks up to (and with) number ``last``."""
        for lane, queue in self.waiting.items():
            self.waiting[lane] = deque(queued for queued in queue if queued.number > last)
        self.delivered = {number: queued for number, queued in self.delivered.items() if number > last}

    def restart(self) -> None:
        """A work queue forgets the ids of acknowledged messages when the server restarts."""
        there = {q.number for lane in self.waiting.values() for q in lane} | set(self.delivered)
        self.ids = {message_id: number for message_id, number in self.ids.items() if number in there}

    def _expire(self) -> None:
        now_s = self.clock()
        for number in [q.number for q in self.delivered.values() if q.lease_ends_s <= now_s]:
            self.give_back(number)


class Registers:
    """The MODEL stream: the last value of each name."""

    def __init__(self) -> None:
        self.entries: dict[str, KeyValueEntry] = {}
        self.former: dict[str, list[KeyValueEntry]] = {}
        self._writes: dict[str, int] = {}
        self._seq = 0

    def write(self, name: str, value: bytes, after: int, write_id: str) -> int:
        """Replace a value; the answer to a repetition is a refusal that the adapter understands."""
        self.check_expected(name, after, write_id)
        if write_id in self._writes:
            return self._writes[write_id]
        self._seq += 1
        self._writes[write_id] = self._seq
        self.entries[name] = KeyValueEntry(value=value, seq=self._seq)
        self.former.setdefault(name, []).append(self.entries[name])
        return self._seq

    def cut(self, random: Random) -> None:
        """The last writes of some names are forgotten."""
        for name, former in self.former.items():
            del former[int(random.random() * (len(former) + 1)) :]
            if former:
                self.entries[name] = former[-1]
            else:
                del self.entries[name]
        self.former = {name: former for name, former in self.former.items() if former}

    def check_expected(self, name: str, after: int, write_id: str) -> None:
        """Fencing of ps: expected-last-subject-sequence."""
        present = self.entries[name].seq if name in self.entries else 0
        if present != after and self._writes.get(write_id) != present:
            raise WrongLastSequenceError


class Broker:
    """The server: its streams, and whether it is up."""

    def __init__(self, clock: Callable[[], float], lease_s: float) -> None:
        self.up = True
        self.log = Log()
        self.tasks = Tasks(clock, lease_s)
        self.registers = Registers()
        self.cores = Registers()

    def stop(self) -> None:
        """SIGKILL; what was acknowledged is on disk."""
        self.up = False

    def start(self) -> None:
        """Up again."""
        self.up = True
        self.tasks.restart()
