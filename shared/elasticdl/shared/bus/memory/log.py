"""The event log in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from elasticdl.shared.bus.memory.transport import Changes, Client
from elasticdl.shared.bus.retries import WrongLastSequenceError, append_once
from elasticdl.shared.bus.stored_events import StoredEvent, from_stored, to_stored
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.process.clock import Clock


class Records:
    """The stored log: record ``seq`` is at index ``seq - 1``.

    Args:
        clock: the broker's.
        dedupe_window_s: seconds during which a repeated message id is recognised. A restart of the broker rebuilds the
            window from the stored records, so it forgets nothing.
    """

    def __init__(self, clock: Clock, dedupe_window_s: float) -> None:
        self.data: list[StoredEvent] = []
        self.fenced: list[int] = []
        """Numbers of the records that masters appended with ``append_fenced``."""
        self.changes = Changes()
        self._clock = clock
        self._dedupe_window_s = dedupe_window_s
        self._seqs: dict[str, tuple[int, float]] = {}

    def append(self, envelope: Envelope) -> int:
        """Store a record, unless the same message id was stored lately; returns its number."""
        now_s = self._clock.monotonic()
        known = self._seqs.get(envelope.id)
        if known is not None and now_s - known[1] < self._dedupe_window_s:
            return known[0]
        self.data.append(to_stored(envelope))
        self._seqs[envelope.id] = len(self.data), now_s
        self.changes.notify()
        return len(self.data)

    def append_next(self, envelope: Envelope, after: int) -> int:
        """Store a record right after another one, or refuse."""
        self.check_last(after)
        return self.append(envelope)

    def append_fenced(self, envelope: Envelope, after: int) -> int:
        """Store a record of a master that knows the last one of the masters, or refuse."""
        self.check_last_fenced(after)
        seq = self.append(envelope)
        self.fenced.append(seq)
        return seq

    def read(self, seq: int) -> LogRecord | None:
        """A stored record; None where there is none."""
        if not 0 < seq <= len(self.data):
            return None
        return LogRecord(seq=seq, envelope=from_stored(self.data[seq - 1]))

    def last_fenced(self) -> LogRecord | None:
        """The last record of the masters."""
        return self.read(self.fenced[-1]) if self.fenced else None

    def cut(self, length: int) -> None:
        """Lose all records but the first ``length``, as a disk that lost its last writes."""
        del self.data[length:]
        self._seqs = {message_id: known for message_id, known in self._seqs.items() if known[0] <= length}
        self.fenced = [seq for seq in self.fenced if seq <= length]

    def check_last(self, after: int) -> None:
        """Refuse a writer that does not know the last record."""
        if after != len(self.data):
            raise WrongLastSequenceError(f"the log ends at {len(self.data)}, not at {after}")

    def check_last_fenced(self, after: int) -> None:
        """Refuse a master that does not know the last record of the masters."""
        last = self.fenced[-1] if self.fenced else 0
        if after != last:
            raise WrongLastSequenceError(f"the last record of the masters is {last}, not {after}")


class MemoryEventLog:
    """See ``ports.EventLog``."""

    def __init__(self, client: Client, records: Records) -> None:
        self._client = client
        self._records = records

    async def append(self, envelope: Envelope) -> int:
        """Add a fact; the same envelope id again answers the same number."""
        return await self._client.ask(_name(envelope), lambda: self._records.append(envelope))

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Add a fact right after a record."""
        return await append_once(
            envelope,
            lambda: self._client.ask(_name(envelope), lambda: self._records.append_next(envelope, after)),
            lambda: self._client.ask("read_record", lambda: self._records.read(after + 1)),
            lambda _: f"the log does not end at {after} any more",
        )

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Add a master's record unless another master has added one."""
        return await append_once(
            envelope,
            lambda: self._client.ask(_name(envelope), lambda: self._records.append_fenced(envelope, after)),
            self.last_fenced,
            lambda there: f"another master has appended record {there.seq if there else 0}, after {after}",
        )

    async def read(self, after: int) -> AsyncIterator[LogRecord]:
        """Records above ``after``, then new ones for ever."""
        last = await self._client.ask("read", lambda: len(self._records.data))
        if after > last:
            raise PermanentError(f"the event log ends at {last}, before record {after}: its end was lost")
        while not self._client.closed:
            while self._client.transport.connected and (record := self._records.read(after + 1)) is not None:
                after += 1
                yield record
            await self._records.changes.wait(self._client, ready=after < len(self._records.data))

    async def last_seq(self) -> int:
        """Number of the last record."""
        return await self._client.ask("last_seq", lambda: len(self._records.data))

    async def last_fenced(self) -> LogRecord | None:
        """The last record of any master."""
        return await self._client.ask("last_fenced", self._records.last_fenced)


def _name(envelope: Envelope) -> str:
    return type(envelope.event).__name__
