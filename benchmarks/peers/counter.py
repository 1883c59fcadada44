"""A number that another process can read at any time: how many steps are done."""

from __future__ import annotations

import os
import struct
from pathlib import Path

_COUNT = struct.Struct("<Q")


class Counter:
    """Counts up."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY)
        self._count = 0

    def add(self) -> None:
        """One step more."""
        self._count += 1
        os.pwrite(self._file, _COUNT.pack(self._count), 0)


def read(path: Path) -> int:
    """The number; 0 before the first step."""
    data = path.read_bytes() if path.exists() else b""
    return int(_COUNT.unpack(data)[0]) if len(data) == _COUNT.size else 0
