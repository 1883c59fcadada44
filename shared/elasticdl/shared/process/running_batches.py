"""The batches that a worker is running, in a small memory-mapped file that survives a crash of the worker.

A worker that segfaults or is killed for its memory can't report anything. The kernel keeps the mapped page that it has
written. On one machine the launcher reads the file. On Kubernetes it is the container's termination message, so it is
text. Several batches may be running: the worker computes one while another thread reads and feeds the next, and further
threads may compute other batches of its round.
"""

from __future__ import annotations

import mmap
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import Purpose

ENVIRONMENT_VARIABLE = "ELASTICDL_RUNNING_BATCHES"
"""Environment variable with the prefix of the file's path; see ``file_of``."""
TERMINATION_MESSAGE_VARIABLE = "ELASTICDL_TERMINATION_MESSAGE"
"""Environment variable with the path of a container's termination message, which is the file then."""
BATCHES_MAX = 32
"""Most batches at a time: one per thread that runs the user's code. Further ones are not recorded."""

_HEAD = "{:>20} batches computed. Those with a * were running:\n"
_LINE = "{}{:>9} task {:>20} batch {:>20}\n"
_HEAD_BYTES = len(_HEAD.format(0))
_LINE_BYTES = len(_LINE.format(" ", "", 0, 0))
_FREE, _RUNNING = b" "[0], b"*"[0]
_HEAD_PATTERN = re.compile(r"^ *(\d+) batches computed")
_LINE_PATTERN = re.compile(rf"^\* *({'|'.join(Purpose)}) task +(\d+) batch +(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTraces:
    """What a worker's file says."""

    running_batches: tuple[RunningBatch, ...] = ()
    batches: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the content of a file; a text of another kind has no batches."""
        head = _HEAD_PATTERN.match(text)
        if not head:
            return cls()
        running = tuple(
            RunningBatch(task=TaskRef(purpose=Purpose(purpose), number=int(task)), batch=int(batch))
            for purpose, task, batch in _LINE_PATTERN.findall(text)
        )
        return cls(running_batches=running, batches=int(head[1]))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; one that does not exist has no batches."""
        try:
            return cls.parse(path.read_text(errors="replace"))
        except OSError:
            return cls()


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
            size = _slot_offset(BATCHES_MAX)
            os.ftruncate(descriptor, size)
            self._page = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._page[:] = (_HEAD.format(0) + (" " * (_LINE_BYTES - 1) + "\n") * BATCHES_MAX).encode()
        self._batches = 0
        self._free = [_slot_offset(slot) for slot in reversed(range(BATCHES_MAX))]

    def running(self, task: TaskRef, batch: int) -> AbstractContextManager[None]:
        """Record a batch as running within a ``with`` block; costs a few microseconds and no system call."""
        return _Running(self._page, self._free, _LINE.format(" ", task.purpose, task.number, batch).encode())

    def count_batch(self) -> None:
        """Count a computed batch; for the main thread only."""
        self._batches += 1
        self._page[:_HEAD_BYTES] = _HEAD.format(self._batches).encode()

    def close(self) -> None:
        """Unmap the file; it stays."""
        self._page.close()

    def __enter__(self) -> RunningBatchesFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Running:
    """One batch in the file, from the beginning to the end of a block.

    Args:
        free: offsets of its free slots; another thread may take or return one at any time.
    """

    __slots__ = ("_free", "_line", "_offset", "_page")

    def __init__(self, page: mmap.mmap, free: list[int], line: bytes) -> None:
        self._page = page
        self._free = free
        self._line = line
        self._offset: int | None = None

    def __enter__(self) -> None:
        try:
            offset = self._offset = self._free.pop()
        except IndexError:  # More batches than slots: this one is not recorded.
            return
        # The state is written last: a crash in between leaves an empty slot, never half a batch.
        self._page[offset : offset + _LINE_BYTES] = self._line
        self._page[offset] = _RUNNING

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._offset is not None:
            self._page[self._offset] = _FREE
            self._free.append(self._offset)


def _slot_offset(slot: int) -> int:
    return _HEAD_BYTES + slot * _LINE_BYTES
