"""Large metric states in memory."""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.shared.bus.memory.transport import Client


class StatesStream:
    """The stored parts by number, each with its group."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[str, bytes]] = {}
        self._last = 0

    def append(self, group: str, part: bytes) -> int:
        """Store a part; returns its number."""
        self._last += 1
        self.parts[self._last] = group, part
        return self._last

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove parts, whether they are there or not."""
        for number in numbers:
            self.parts.pop(number, None)

    def remove_group(self, group: str) -> None:
        """Remove all parts of a group."""
        self.remove([number for number, (of, _) in self.parts.items() if of == group])


class MemoryStoredStates:
    """See ``ports.StoredStates``."""

    def __init__(self, client: Client, stream: StatesStream) -> None:
        self._client = client
        self._stream = stream

    async def append(self, group: str, part: bytes) -> int:
        """Store a part."""
        return await self._client.ask("states", lambda: self._stream.append(group, part))

    async def read(self, number: int) -> bytes | None:
        """A part."""
        found = await self._client.ask("states.read", lambda: self._stream.parts.get(number))
        return found[1] if found else None

    async def remove(self, numbers: Iterable[int]) -> None:
        """Remove parts by number."""
        removed = list(numbers)
        await self._client.ask("states.remove", lambda: self._stream.remove(removed))

    async def remove_group(self, group: str) -> None:
        """Remove all parts of a group."""
        await self._client.ask("states.remove", lambda: self._stream.remove_group(group))
