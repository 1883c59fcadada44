"""Sends a log to child processes as it is read from the broker, so that they decode and fold it at the same time."""

from __future__ import annotations

import asyncio
import gc
import json
import struct
import sys
from array import array
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate, pairwise
from pickle import UnpicklingError
from typing import IO, Any

from elasticdl.shared.bus.ports import LogReader
from elasticdl.shared.bus.reading import encoded_records
from elasticdl.shared.bus.stored_events import whole_record
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import LogRecord

RECORDS_MIN = 1 << 15
"""The least number of records for which a child is started: it takes half a second to start."""
_PIECE_BYTES = 1 << 18
_COUNT = struct.Struct("<I")


@asynccontextmanager
async def child(module: str, settings: Mapping[str, Any]) -> AsyncIterator[Process]:
    """A process that runs a module, to which a log is sent. It is killed if it has not ended at the end of the block.

    Args:
        module: calls ``run_child``.
        settings: JSON values for it; ``records``: how many records it is sent.
    """
    command = [sys.executable, "-P", "-m", module]
    # In a group of its own, Ctrl-C does not reach it: this process handles that.
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, process_group=0)
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


class EndedError(Exception):
    """A child has ended before all was sent; its answer says why."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.pid)
        self.process = process


async def send(log: LogReader, until: int, *children: Process, after: int = 0) -> None:
    """Send the records above a number until one that is there. Raises ``EndedError``."""
    records: list[bytes] = []
    size_bytes, left = 0, until - after
    async for some in encoded_records(log, after, until):
        records += some
        size_bytes += sum(map(len, some))
        left -= len(some)
        if size_bytes >= _PIECE_BYTES or not left:
            piece = b"".join((_COUNT.pack(len(records)), array("I", map(len, records)).tobytes(), *records))
            records, size_bytes = [], 0
            for each in children:
                assert each.stdin is not None
                each.stdin.write(piece)
            for each in children:
                assert each.stdin is not None
                try:
                    await each.stdin.drain()
                except ConnectionError as error:
                    raise EndedError(each) from error


async def answer(process: Process) -> bytes:
    """What a child says, to which no more is sent. Raises ``InvariantError``: it has failed."""
    said, _ = await process.communicate(b"")  # Closes its standard input, which without an argument stays open.
    if process.returncode:
        raise InvariantError(f"a child process that reads the event log ended with exit code {process.returncode}")
    return said


def run_child(do: Callable[[SentLog, Any], Coroutine[Any, Any, str]]) -> int:
    """In a child: print what a function makes of the log that is sent and of the settings; returns the exit code."""
    gc.freeze()
    try:
        settings = json.loads(sys.stdin.buffer.readline() or "null")
        if settings is None:
            raise EOFError
        sys.stdout.write(asyncio.run(do(SentLog(sys.stdin.buffer, settings["records"]), settings)))
        sys.stdout.flush()
    except (EOFError, BrokenPipeError, UnpicklingError):  # The parent was killed.
        return 1
    return 0


class SentLog:
    """The records that the parent sends. See ``EncodedLog``; ``pipe`` has what comes before and after them."""

    def __init__(self, pipe: IO[bytes], records: int) -> None:
        self.pipe = pipe
        self._records = records

    async def last_seq(self) -> int:
        """See ``LogReader``."""
        return self._records

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        """See ``LogReader``; once, from the first one on that is sent. Raises ``EOFError``: the parent was killed."""
        async for some in self.encoded(after, until or self._records):
            for data in some:
                after += 1
                yield whole_record(after, data, decode)

    async def encoded(self, after: int, until: int) -> AsyncIterator[Sequence[bytes]]:
        """See ``EncodedLog``. As ``read``."""
        while after < until:
            (count,) = _COUNT.unpack(self._next(_COUNT.size))
            sizes = array("I", self._next(count * _COUNT.size))
            piece = self._next(sum(sizes))
            after += count
            yield [piece[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]

    def _next(self, size_bytes: int) -> bytes:
        data = self.pipe.read(size_bytes)
        if len(data) < size_bytes:
            raise EOFError
        return data
