"""Key-value entries in memory."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

from elasticdl.shared.bus.memory.transport import Changes, Client
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.bus.retries import WrongLastSequenceError
from elasticdl.shared.errors import FencedError


class Entries:
    """The stored values, each with those that it replaced."""

    def __init__(self) -> None:
        self.former: dict[str, list[KeyValueEntry]] = {}
        """All values of each name, the present one last."""
        self.changes = Changes()
        self._writers: dict[int, str] = {}
        self._seq = 0

    def present(self, name: str) -> KeyValueEntry | None:
        """The present value."""
        return self.former[name][-1] if self.former.get(name) else None

    def write(self, name: str, value: bytes, after: int, write_id: str) -> int:
        """Replace a value whose number the writer knows, or refuse."""
        self.check_last(name, after)
        self._seq += 1
        self._writers[self._seq] = write_id
        self.former.setdefault(name, []).append(KeyValueEntry(value=value, seq=self._seq))
        self.changes.notify()
        return self._seq

    def written_by(self, name: str, write_id: str) -> int:
        """The number of the present value if that write stored it; otherwise 0."""
        present = self.present(name)
        return present.seq if present and self._writers[present.seq] == write_id else 0

    def above(self, seq: int) -> tuple[str, KeyValueEntry] | None:
        """The oldest present value that is newer than a number."""
        fresh = [(values[-1].seq, name) for name, values in self.former.items() if values and values[-1].seq > seq]
        if not fresh:
            return None
        _, name = min(fresh)
        return name, self.former[name][-1]

    def remove_below(self, name: str, before: int) -> None:
        """Remove the values below a name that are older than an entry."""
        for each in [each for each in self.former if each.startswith(f"{name}.")]:
            if self.former[each][-1].seq < before:
                del self.former[each]

    def clear(self) -> None:
        """Lose all values."""
        self.former.clear()

    def cut(self, name: str, length: int) -> None:
        """Lose all values of a name but the first ``length``, as a disk that lost its last writes."""
        del self.former[name][length:]
        if not self.former[name]:
            del self.former[name]

    def check_last(self, name: str, after: int) -> None:
        """Refuse a writer that does not know the present value."""
        present = self.present(name)
        last = present.seq if present else 0
        if after != last:
            raise WrongLastSequenceError(f"it is at {last}, not at {after}")


class MemoryKeyValue:
    """See ``ports.KeyValue``."""

    def __init__(self, client: Client, entries: Entries, kind: str) -> None:
        self._client = client
        self._entries = entries
        self._kind = kind

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value."""
        return await self._client.ask(f"{self._kind}.read", lambda: self._entries.present(name))

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value that the writer knows; a refusal of our own repetition is a success."""
        write_id = secrets.token_hex(12)
        try:
            return await self._client.ask(self._kind, lambda: self._entries.write(name, value, after, write_id))
        except WrongLastSequenceError as error:
            seq = await self._client.ask(f"{self._kind}.writer", lambda: self._entries.written_by(name, write_id))
            if seq:
                return seq
            raise FencedError(f"{self._kind} {name} was written by another process: {error}") from error

    async def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        """Present values, then changes forever."""
        seen = 0
        while not self._client.closed:
            while self._client.transport.connected and (fresh := self._entries.above(seen)) is not None:
                seen = fresh[1].seq
                yield fresh
            await self._entries.changes.wait(self._client, ready=self._entries.above(seen) is not None)

    async def remove_below(self, name: str, *, before: int) -> None:
        """Remove old values below a name."""
        await self._client.ask(f"{self._kind}.remove", lambda: self._entries.remove_below(name, before))
