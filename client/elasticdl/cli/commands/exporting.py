"""Exports a long event log with two processes: this one reads it from the broker, its child folds and writes it.

Each takes about half of the time. Run as a program, this module is the child. It takes a line of JSON and then the
records from its standard input, and prints the error if the file can't be written.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import struct
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from elasticdl.shared.bus.ports import LogReader
from elasticdl.shared.bus.reading import encoded_records
from elasticdl.shared.bus.stored_events import whole_record
from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.names import JobId
from elasticdl.views.files.anonymous import Anonymizer
from elasticdl.views.files.exported_log import ExportedLog, Header, export

RECORDS_MIN = 1 << 15
"""The least number of records for which a child is started: it takes half a second to start."""
_PIECE_BYTES = 1 << 18
_LENGTH = struct.Struct("<I")


def change_of(anonymized: JobId | None) -> Callable[[Envelope], Envelope]:
    """What an export does to each envelope; ``anonymized``: the job whose names it replaces."""
    return Anonymizer(anonymized).envelope if anonymized else lambda envelope: envelope


async def export_log(log: LogReader, path: Path, header: Header, anonymized: JobId | None) -> Header:
    """As ``exported_log.export``, with a child if the log is long."""
    records = await log.last_seq()
    if records < RECORDS_MIN or isinstance(log, ExportedLog):  # A file is read in a tenth of the time of a broker.
        return await export(log, path, header, change_of(anonymized))
    header = replace(header, records=records)
    settings = {"path": str(path), "header": asdict(header), "anonymized": anonymized}
    child = await asyncio.create_subprocess_exec(sys.executable, "-P", "-m", __name__, stdin=PIPE, stdout=PIPE)
    try:
        assert child.stdin is not None
        with suppress(ConnectionError):  # The child has ended and says why.
            await _send(log, settings, child.stdin)
        problem, _ = await child.communicate()
    except BaseException:
        child.kill()  # Its file appears only when it is complete.
        await child.wait()
        raise
    if problem:
        error = json.loads(problem)
        raise UserError(error["message"], hint=error["hint"])
    if child.returncode:
        raise InvariantError(f"the process that writes {path} ended with exit code {child.returncode}")
    return header


async def _send(log: LogReader, settings: Mapping[str, Any], pipe: asyncio.StreamWriter) -> None:
    """Send the records as they are encoded: only the child decodes them."""
    piece = bytearray(json.dumps(settings).encode() + b"\n")
    async for records in encoded_records(log, settings["header"]["records"]):
        for data in records:
            piece += _LENGTH.pack(len(data))
            piece += data
        if len(piece) >= _PIECE_BYTES:
            pipe.write(bytes(piece))
            piece.clear()
            await pipe.drain()
    pipe.write(bytes(piece))


class _SentLog:
    """The records that the parent sends. See ``LogReader``."""

    def __init__(self, pipe: IO[bytes], records: int) -> None:
        self._pipe = pipe
        self._records = records

    async def last_seq(self) -> int:
        """See ``LogReader``."""
        return self._records

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        """See ``LogReader``; once, from the first record on."""
        for seq in range(after + 1, (until or self._records) + 1):
            yield whole_record(seq, self._next(*_LENGTH.unpack(self._next(_LENGTH.size))), decode)

    def _next(self, size_bytes: int) -> bytes:
        data = self._pipe.read(size_bytes)
        if len(data) < size_bytes:
            raise EOFError
        return data


def main() -> int:
    """Write the file; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C, and kills its child.
    gc.freeze()
    settings = json.loads(sys.stdin.buffer.readline())
    header = Header(**settings["header"])
    log = _SentLog(sys.stdin.buffer, header.records)
    try:
        asyncio.run(export(log, Path(settings["path"]), header, change_of(settings["anonymized"])))
    except UserError as error:
        sys.stdout.write(json.dumps({"message": error.args[0], "hint": error.hint}))
    except EOFError:  # The parent was killed.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
