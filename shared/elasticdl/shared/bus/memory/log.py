"""The event log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from elasticdl.shared.bus.memory.transport import Changes, Client
from elasticdl.shared.bus.retries import WrongLastSequenceError, append_once
from elasticdl.shared.bus.stored_events import DATA_BYTES_MAX, Payloads, StoredEvent
from elasticdl.shared.errors import InvariantError, PermanentError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.process.clock import Clock


class Records:
    """The stored log: record ``seq`` is at index ``seq - 1``.

    Args:
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

    def append(self, event: StoredEvent) -> int:
        """Store a record, unless the same message id was stored lately; returns its number."""
        now_s = self._clock.monotonic()
        known = self._seqs.get(event.id) if event.id else None  # Strangers may give none.
        if known is not None and now_s - known[1] < self._dedupe_window_s:
            return known[0]
        if len(event.data) > DATA_BYTES_MAX:
            raise InvariantError(f"event {event.id} has {len(event.data)} bytes: above the limit of the log")
        self.data.append(event)
        self._seqs[event.id] = len(self.data), now_s
        self.changes.notify()
        return len(self.data)

    def append_next(self, event: StoredEvent, after: int) -> int:
        """Store a record right after another one, or refuse."""
        self.check_last(after)
        return self.append(event)

    def append_fenced(self, event: StoredEvent, after: int) -> int:
        """Store a record of a master that knows the last one of the masters, or refuse."""
        self.check_last_fenced(after)
        seq = self.append(event)
        self.fenced.append(seq)
        return seq

    def last_fenced(self) -> int:
        """Number of the last record of the masters; 0 if absent."""
        return self.fenced[-1] if self.fenced else 0

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
        last = self.last_fenced()
        if after != last:
            raise WrongLastSequenceError(f"the last record of the masters is {last}, not {after}")


class MemoryEventLog:
    """See ``ports.EventLog``."""

    def __init__(self, client: Client, records: Records, payloads: Payloads) -> None:
        self._client = client
        self._records = records
        self._payloads = payloads

    async def append(self, envelope: Envelope) -> int:
        """Add a fact; the same envelope id again answers the same number."""
        event = await self._payloads.store(envelope)
        return await self._client.ask(_name(envelope), lambda: self._records.append(event))

    async def append_all(self, envelopes: Sequence[Envelope]) -> None:
        """Add facts, all of them under way at the same time."""
        await asyncio.gather(*map(self.append, envelopes))

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Add a fact right after a record."""
        event = await self._payloads.store(envelope)
        return await append_once(
            envelope,
            lambda: self._client.ask(_name(envelope), lambda: self._records.append_next(event, after)),
            lambda: self._read("read_record", lambda: after + 1),
            lambda _: f"the log does not end at {after} any more",
        )

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Add a master's record unless another master has added one."""
        event = await self._payloads.store(envelope)
        return await append_once(
            envelope,
            lambda: self._client.ask(_name(envelope), lambda: self._records.append_fenced(event, after)),
            self.last_fenced,
            lambda there: f"another master has appended record {there.seq if there else 0}, after {after}",
        )

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        """Records above ``after``, then new ones forever."""
        last = await self._client.ask("read", lambda: len(self._records.data))
        if after > last:
            raise PermanentError(f"the event log ends at {last}, before record {after}: its end was lost")
        while not (self._client.closed or 0 < until <= after):
            while self._client.transport.connected and after < len(self._records.data):
                after += 1
                yield await self._payloads.record(after, self._records.data[after - 1], decode)
                if after == until:
                    return
            await self._records.changes.wait(self._client, ready=after < len(self._records.data))

    async def last_seq(self) -> int:
        """Number of the last record."""
        return await self._client.ask("last_seq", lambda: len(self._records.data))

    async def last_fenced(self) -> LogRecord | None:
        """The last record of any master."""
        return await self._read("last_fenced", self._records.last_fenced)

    async def _read(self, what: str, seq_of: Callable[[], int]) -> LogRecord | None:
        """The record whose number the broker knows, if it has one."""

        def read() -> tuple[int, StoredEvent] | None:
            seq = seq_of()
            return (seq, self._records.data[seq - 1]) if 0 < seq <= len(self._records.data) else None

        found = await self._client.ask(what, read)
        return None if found is None else await self._payloads.record(*found)


def _name(envelope: Envelope) -> str:
    return type(envelope.event).__name__
