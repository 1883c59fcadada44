"""The event log in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from elasticdl.shared.bus.memory.client import Client
from elasticdl.shared.errors import FencedError, PermanentError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope, LogRecord


class Records:
    """The stored log: record ``seq`` is at index ``seq - 1``."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.seqs: dict[str, int] = {}
        self.last_decision_seq = 0

    def add(self, envelope: Envelope) -> int:
        """Store a record and return its number."""
        self.data.append(codec.encode_envelope(envelope))
        self.seqs[envelope.id] = len(self.data)
        return len(self.data)

    def read(self, seq: int) -> LogRecord:
        """A stored record."""
        return LogRecord(seq=seq, envelope=codec.decode_envelope(self.data[seq - 1]))


class MemoryEventLog:
    """See ``ports.EventLog``."""

    def __init__(self, client: Client, records: Records) -> None:
        self._client = client
        self._records = records

    async def append(self, envelope: Envelope) -> int:
        """Add a fact; the same envelope id again answers the same number."""
        if envelope.id in self._records.seqs:
            return self._records.seqs[envelope.id]
        seq = self._records.add(envelope)
        self._client.bell.ring()
        return seq

    async def append_next(self, envelope: Envelope, *, after: int) -> int:
        """Add a fact right after a record."""
        if after != len(self._records.data):
            if self._records.seqs.get(envelope.id) == after + 1:
                return after + 1
            raise FencedError(f"the log does not end at {after} any more")
        return await self.append(envelope)

    async def append_fenced(self, envelope: Envelope, *, after: int) -> int:
        """Add a decision unless another master has."""
        last = self._records.last_decision_seq
        if after != last:
            if last and self._records.read(last).envelope.id == envelope.id:
                return last
            raise FencedError(f"another master has decided something at {last}, this one knew of {after}")
        self._records.last_decision_seq = seq = self._records.add(envelope)
        self._client.bell.ring()
        return seq

    async def read(self, after: int) -> AsyncIterator[LogRecord]:
        """Records above ``after``, then new ones for ever."""
        if after > len(self._records.data):
            raise PermanentError(f"the event log ends at {len(self._records.data)}, before record {after}")
        while not self._client.closed:
            while after < len(self._records.data):
                after += 1
                yield self._records.read(after)
            await self._client.bell.wait()

    async def last_seq(self) -> int:
        """Number of the last record."""
        return len(self._records.data)

    async def last_fenced(self) -> LogRecord | None:
        """The last decision of any master."""
        last = self._records.last_decision_seq
        return self._records.read(last) if last else None
