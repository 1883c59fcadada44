"""Registers in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from elasticdl.shared.bus.memory.client import Client
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.errors import FencedError


class MemoryKeyValue:
    """See ``ports.KeyValue``."""

    def __init__(self, client: Client, entries: dict[str, KeyValueEntry]) -> None:
        self._client = client
        self._entries = entries

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value."""
        return self._entries.get(name)

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value that the writer knows."""
        present = self._entries[name].seq if name in self._entries else 0
        if present != after:
            raise FencedError(f"register {name} was written by somebody else: it is at {present}, not at {after}")
        seq = max((entry.seq for entry in self._entries.values()), default=0) + 1
        self._entries[name] = KeyValueEntry(value=value, seq=seq)
        self._client.bell.ring()
        return seq

    async def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        """Present values, then changes for ever."""
        seen = 0
        while not self._client.closed:
            fresh = sorted((entry.seq, name) for name, entry in self._entries.items() if entry.seq > seen)
            for seq, name in fresh:
                seen = seq
                if self._entries[name].seq == seq:
                    yield name, self._entries[name]
            if not fresh:
                await self._client.bell.wait()
