"""Memory by the page, for arrays that grow to gigabytes while pushes wait.

An ordinary array that grows is cleared where it is new, and one that goes away gives everything back at once, with
the GIL held: up to a second per gigabyte. Fresh pages are zero, take memory only once they are written, and are
returned in pieces. Unlike NumPy, this module asks for no huge pages: finding one while a snapshot fills the page cache
took up to 0.3 s.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_PIECE_BYTES = 8 << 20
_MADV_POPULATE_WRITE = 23
_madvise = ctypes.CDLL(None).madvise
"""Unlike the method of ``mmap``, it releases the GIL. Older kernels refuse advice that they do not know."""
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

T = TypeVar("T", bound=np.generic)


class Pages:
    """Anonymous memory that can grow in place or be moved by the system, without being copied."""

    def __init__(self, nbytes: int) -> None:
        try:
            self._map = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"no {nbytes} bytes of memory for the rows of a table") from error

    def view(self, dtype: type[T], count: int) -> NDArray[T]:
        """The first ``count`` values. No view may be left when ``grow`` or ``free`` is called."""
        return np.frombuffer(self._map, dtype, count)

    def grow(self, nbytes: int) -> None:
        """Make it larger; what is new is zero. After a ``MemoryError`` nothing has changed."""
        try:
            self._map.resize(nbytes)
        except (OSError, ValueError) as error:
            raise MemoryError(f"no {nbytes} bytes of memory for the rows of a table") from error

    def touch(self, start: int, stop: int) -> None:
        """Touch these pages now, so that a later write causes no page fault. Their content is unchanged."""
        start = start // mmap.PAGESIZE * mmap.PAGESIZE
        self._advise(_MADV_POPULATE_WRITE, start, min(stop, len(self._map)))

    def free(self) -> None:
        """Return all memory to the system; other threads run meanwhile."""
        if len(self._map) > _PIECE_BYTES:
            self._advise(mmap.MADV_DONTNEED, 0, len(self._map))
        self._map.close()

    def _advise(self, advice: int, start: int, stop: int) -> None:
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        for first in range(start, stop, _PIECE_BYTES):
            _madvise(address + first, min(_PIECE_BYTES, stop - first), advice)
