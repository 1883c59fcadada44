"""Receive buffers that are used again, so that large frames don't fault in fresh pages every time."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.aligned import aligned_empty

Bytes = npt.NDArray[np.uint8]

_SMALLEST_BYTES = 1 << 12


IDLE_BYTES_MAX = 256 << 20
"""Unused bytes that a pool keeps."""


class BufferPool:
    """Buffers by size class (powers of two), thread-safe.

    A buffer that is never returned is freed by Python as any other array: forgetting one costs speed, not memory.
    Return a buffer only after its last use: later readers would see other data.
    """

    def __init__(self) -> None:
        self._idle: dict[int, list[Bytes]] = {}
        self._idle_bytes = 0
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> Bytes:
        """An aligned uint8 buffer of at least ``size_bytes``, content undefined."""
        size_class = max(_SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length()) if size_bytes else _SMALLEST_BYTES
        with self._lock:
            idle = self._idle.get(size_class)
            if idle:
                self._idle_bytes -= size_class
                return idle.pop()
        return aligned_empty(size_class, np.uint8)

    def give_back(self, buffer: Bytes) -> None:
        """Return a buffer got from ``take``. Neither it nor a view of it may be used afterwards."""
        with self._lock:
            if self._idle_bytes + buffer.size <= IDLE_BYTES_MAX:
                self._idle.setdefault(buffer.size, []).append(buffer)
                self._idle_bytes += buffer.size
