"""The batches that a worker is running, in a small memory-mapped file that survives a crash of the worker.

A worker that segfaults or is killed for its memory can't report anything. The kernel keeps the mapped page that it has
written, and the launcher reads from the file which batches were running. There may be several: the worker computes one
while another thread reads and feeds the next.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import Purpose

ENVIRONMENT_VARIABLE = "ELASTICDL_RUNNING_BATCHES"
"""Environment variable with the prefix of the file's path; see ``file_of``."""
BATCHES_MAX = 4
"""Most batches at a time: one per thread that runs the user's code, and one spare."""

_MAGIC = b"EDLbatch"
_SLOT = struct.Struct("<BBxxxxxxQQ")
"""State, number of the purpose, task, batch."""
_COUNT = struct.Struct("<Q")
"""Batches that this process has computed."""
_COUNT_OFFSET = len(_MAGIC) + BATCHES_MAX * _SLOT.size
_FILE_BYTES = _COUNT_OFFSET + _COUNT.size
_FREE, _RUNNING = 0, 1
_PURPOSES = tuple(Purpose)


def file_of(beginning: str | Path, pid: int) -> Path:
    """The file of one process. Each process has its own, so that a successor's file is never read or removed."""
    return Path(f"{beginning}.{pid}")


class RunningBatchesFile:
    """The worker's side: writes the file. Any thread may run a batch.

    Args:
        path: the file; it is created or truncated. Its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, _FILE_BYTES)
            self._page = mmap.mmap(descriptor, _FILE_BYTES)
        finally:
            os.close(descriptor)
        self._page[: len(_MAGIC)] = _MAGIC
        self._lock = threading.Lock()
        self._batches = 0
        self._free = [_slot_offset(slot) for slot in reversed(range(BATCHES_MAX))]

    @contextmanager
    def running(self, batch: RunningBatch) -> Iterator[None]:
        """Record a batch as running within the block; costs a few microseconds and no system call.

        Raises:
            InvariantError: ``BATCHES_MAX`` batches are running already.
        """
        offset = self._take(batch)
        try:
            yield
        finally:
            with self._lock:
                self._page[offset] = _FREE
                self._free.append(offset)

    def count_batch(self) -> None:
        """Count a computed batch; for the main thread only."""
        self._batches += 1
        _COUNT.pack_into(self._page, _COUNT_OFFSET, self._batches)

    def _take(self, batch: RunningBatch) -> int:
        purpose = _PURPOSES.index(batch.task.purpose)
        with self._lock:
            if not self._free:
                raise InvariantError(f"more than {BATCHES_MAX} batches are running")
            offset = self._free.pop()
            # The state byte is written last: a crash in between leaves an empty slot, never half a batch.
            _SLOT.pack_into(self._page, offset, _FREE, purpose, batch.task.number, batch.batch)
            self._page[offset] = _RUNNING
        return offset

    def close(self) -> None:
        """Unmap the file; it stays."""
        self._page.close()

    def __enter__(self) -> RunningBatchesFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_running_batches(path: Path) -> tuple[RunningBatch, ...]:
    """The batches that the worker of this file was running; none if it ran none or there is no valid file."""
    content = _content(path)
    if not content:
        return ()
    slots = (_SLOT.unpack_from(content, _slot_offset(slot)) for slot in range(BATCHES_MAX))
    return tuple(
        RunningBatch(task=TaskRef(purpose=_PURPOSES[purpose], number=task), batch=batch)
        for state, purpose, task, batch in slots
        if state == _RUNNING and purpose < len(_PURPOSES)
    )


def read_batches(path: Path) -> int:
    """How many batches the worker of this file had computed; 0 if there is no valid file."""
    content = _content(path)
    return int(_COUNT.unpack_from(content, _COUNT_OFFSET)[0]) if content else 0


def _content(path: Path) -> bytes:
    """The file's content; empty if there is no valid file."""
    try:
        content = path.read_bytes()
    except OSError:
        return b""
    return content if len(content) == _FILE_BYTES and content.startswith(_MAGIC) else b""


def _slot_offset(slot: int) -> int:
    return len(_MAGIC) + slot * _SLOT.size
