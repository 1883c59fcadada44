"""Memory for sums that other members on the same machine can read.

A block is an anonymous file in memory. Another process opens it by the number of its descriptor, and compares the key
in its first bytes: so it never reads anything else, and a process in another container, which can't open it, takes the
sums from the socket. A block has no name, so nothing is left behind when a process is killed.

A block is written again only when its reader has told that it has read it. After a break it is not known how far the
reader is: then the block is not used any more, so that a member that is late can't read the sum of another round.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.aligned import aligned_empty

_HEAD_BYTES = mmap.PAGESIZE
KEY_BYTES = 16
_MAPPED_MAX = 8
"""Blocks of another member that are kept mapped: it uses three or four in turns."""


class Block:
    """Some memory, with the key that proves which one it is.

    Attributes:
        descriptor: 0: other processes can't read it.
        unread: how many reductions have shown it to a neighbour that has not read all of it.
        is_lost: the connection to such a neighbour broke, so it may read the block at any time.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.descriptor, self.key, self.unread, self.is_lost = 0, secrets.token_bytes(KEY_BYTES), 0, False
        with contextlib.suppress(OSError, AttributeError):
            self.descriptor = os.memfd_create("elasticdl-ring", os.MFD_CLOEXEC)
            os.ftruncate(self.descriptor, _HEAD_BYTES + size_bytes)
            memory = np.frombuffer(mmap.mmap(self.descriptor, _HEAD_BYTES + size_bytes), np.uint8)
            memory[:KEY_BYTES] = np.frombuffer(self.key, np.uint8)
            self.bytes: npt.NDArray[np.uint8] = memory[_HEAD_BYTES:]
            return
        self._close()
        self.bytes = aligned_empty(size_bytes, np.uint8)

    def __del__(self) -> None:
        self._close()

    def _close(self) -> None:
        descriptor, self.descriptor = self.descriptor, 0
        if descriptor:
            with contextlib.suppress(OSError):
                os.close(descriptor)


class Blocks:
    """Blocks that are used in turns. Not thread-safe."""

    def __init__(self) -> None:
        self._idle: list[Block] = []

    def take(self, size_bytes: int) -> Block:
        """A block of this size, content undefined."""
        self._idle = [block for block in self._idle if block.size_bytes == size_bytes and not block.is_lost]
        for number, block in enumerate(self._idle):
            if not block.unread:
                return self._idle.pop(number)
        return Block(size_bytes)

    def give_back(self, block: Block) -> None:
        """Use a block again, once its reader has read it."""
        if not block.is_lost:
            self._idle.append(block)


class Mapped:
    """Blocks of one other process, as this one sees them."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, npt.NDArray[np.uint8]] = {}

    def open(self, process: int, descriptor: int, key: bytes, size_bytes: int) -> npt.NDArray[Any] | None:
        """The bytes of a block, read-only; None: this process can't read it, or it is another one."""
        known = self._blocks.get(key)
        if known is None:
            known = _map(process, descriptor, key, size_bytes)
            if known is None:
                return None
            for oldest in itertools.islice(list(self._blocks), max(0, len(self._blocks) + 1 - _MAPPED_MAX)):
                del self._blocks[oldest]
            self._blocks[key] = known
        return known[:size_bytes] if known.size >= size_bytes else None


def _map(process: int, descriptor: int, key: bytes, size_bytes: int) -> npt.NDArray[np.uint8] | None:
    try:
        opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(opened).st_size
        if size < _HEAD_BYTES + size_bytes:
            return None
        memory = np.frombuffer(mmap.mmap(opened, size, prot=mmap.PROT_READ), np.uint8)
    except (OSError, ValueError):
        return None
    finally:
        os.close(opened)
    return memory[_HEAD_BYTES:] if memory[:KEY_BYTES].tobytes() == key else None
