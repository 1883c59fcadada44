"""Values that may be larger than a message: they are written in parts, and their register names the parts.

The parts come first, under names that no other write uses. Then the register names them, under the condition that its
value is still the one that the writer knows. Then all older parts are removed. So a reader gets a whole value, or the
one before. A writer that is killed between two parts leaves parts that no register names; the next write in parts
removes them.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from hashlib import blake2b

from elasticdl.shared.bus.ports import KeyValue, KeyValueEntry
from elasticdl.shared.errors import PermanentError, TransientError
from elasticdl.shared.process.logs import get_logger

_MAGIC = b"EDLP"
_NAMED = re.compile(rb"([0-9a-f]{1,32}) ([0-9]{1,6}) ([0-9a-f]{32})")
PARTS_MAX = 1024
"""Most parts of a value: 512 MiB with parts of the usual size."""
_log = get_logger()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a register holds in place of a large value; ``write``: names the write, and so the parts."""

    write: str
    count: int
    digest: str

    def encode(self) -> bytes:
        return _MAGIC + f"{self.write} {self.count} {self.digest}".encode()

    @staticmethod
    def decode(value: bytes) -> _Parts:
        """Inverse of ``encode``. What can't be read names no part, and no value has its digest."""
        found = _NAMED.fullmatch(value.removeprefix(_MAGIC))
        if found is None or int(found[2]) > PARTS_MAX:
            return _Parts("0", 0, "")
        return _Parts(found[1].decode(), int(found[2]), found[3].decode())

    def names(self, name: str) -> list[str]:
        return [f"{name}.{self.write}-{number}" for number in range(self.count)]


class SplitValues:
    """See ``ports.LargeValues``: splits values into parts, and joins them again.

    Args:
        values: registers and parts; nothing else may write there.
        part_bytes_max: the largest part. A smaller value is stored as it is.
    """

    def __init__(self, values: KeyValue, part_bytes_max: int) -> None:
        self._values = values
        self._part_bytes_max = part_bytes_max
        self._split: set[str] = set()
        """Names whose present value may have parts, as far as this client knows."""

    async def read(self, name: str) -> KeyValueEntry | None:
        """The present value, if any; empty if the broker has lost a part of it."""
        last_seq = 0
        while (entry := await self._values.read(name)) is not None and entry.value.startswith(_MAGIC):
            parts = _Parts.decode(entry.value)
            self._split.add(name)
            data = await self._joined(parts.names(name))
            if data is not None and _digest(data) == parts.digest:
                return KeyValueEntry(value=data, seq=entry.seq)
            if entry.seq == last_seq:
                _log.warning("the broker has lost a part of a value", name=name, parts=parts.count)
                return KeyValueEntry(value=b"", seq=entry.seq)
            last_seq = entry.seq  # Another process may just have replaced it.
        return entry

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        """Replace the value, and remove the parts of older ones."""
        size = self._part_bytes_max
        if len(value) <= size and not value.startswith(_MAGIC):
            seq = await self._values.write(name, value, after=after)
            if name in self._split and await self._remove(name, seq):
                self._split.discard(name)
            return seq
        self._split.add(name)
        parts = _Parts(secrets.token_hex(8), -(-len(value) // size), _digest(value))
        first_seq = 0
        for number, part in enumerate(parts.names(name)):
            part_seq = await self._values.write(part, value[number * size : (number + 1) * size], after=0)
            first_seq = first_seq or part_seq
        seq = await self._values.write(name, parts.encode(), after=after)
        await self._remove(name, first_seq)
        return seq

    async def _joined(self, names: list[str]) -> bytes | None:
        parts: list[bytes] = []
        for name in names:
            entry = await self._values.read(name)
            if entry is None:
                return None
            parts.append(entry.value)
        return b"".join(parts)

    async def _remove(self, name: str, before: int) -> bool:
        """Remove older parts; whether that was possible."""
        try:
            await self._values.remove_below(name, before=before)
        except (TransientError, PermanentError) as error:  # The value is stored; the next write removes them, too.
            _log.warning("parts of older values not removed", name=name, reason=str(error))
            return False
        return True


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
