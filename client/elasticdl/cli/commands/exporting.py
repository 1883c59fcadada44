"""Exports a long event log with three processes: this one reads it from the broker, its children fold and write it.

One child, ``snapshots``, folds it as the master does and answers with core snapshots. The other one, ``write``, writes
the file, finds where the time went, and puts the snapshots that the parent passes to it into the index. Run as a
program, this module is either child. The second one prints the error if the file can't be written.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.sent_logs import RECORDS_MIN, SentLog, answer, child, received, send
from elasticdl.shared.bus.ports import LogReader
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import Envelope, JobSubmitted, LogRecord, TaskTaken
from elasticdl.shared.names import JobId
from elasticdl.views.files.anonymous import Anonymizer
from elasticdl.views.files.exported_log import ExportedLog, Header, changed, export
from elasticdl.views.files.log_index import Indexing, Snapshots
from elasticdl.views.wall_time.fold import FIELDS


def change_of(anonymized: JobId | None) -> Callable[[Envelope], Envelope]:
    """What an export does to each envelope; ``anonymized``: the job whose names it replaces."""
    return Anonymizer(anonymized).envelope if anonymized else lambda envelope: envelope


async def export_log(log: LogReader, path: Path, header: Header, anonymized: JobId | None) -> Header:
    """As ``exported_log.export``, with children if the log is long."""
    records = await log.last_seq()
    if records < RECORDS_MIN or isinstance(log, ExportedLog):  # A file is read in a tenth of the time of a broker.
        return await export(log, path, header, change_of(anonymized))
    header = replace(header, records=records)
    settings = {"path": str(path), "header": asdict(header), "anonymized": anonymized, "records": records}
    async with (
        child(__name__, settings | {"child": "write"}) as writer,
        child(__name__, settings | {"child": "snapshots"}) as folder,
    ):
        with suppress(ConnectionError):  # The writer has ended and says why.
            await send(log, records, folder, writer)
            snapshots = await answer(folder)
            assert writer.stdin is not None
            writer.stdin.write(snapshots)
        problem = await answer(writer)
    if problem:
        error = json.loads(problem)
        raise UserError(error["message"], hint=error["hint"])
    return header


async def _fold(log: SentLog, change: Callable[[Envelope], Envelope]) -> list[tuple[int, str]]:
    snapshots = Snapshots()
    async for record in log.read(0):
        snapshots.take(changed(record, change))
    found = snapshots.finish()
    return [(seq, base64.b64encode(data).decode()) for seq, data in found]


class _SentSnapshots(Snapshots):
    """The core snapshots that the other child has made."""

    def __init__(self, log: SentLog) -> None:
        super().__init__()
        self._log = log

    def take(self, record: LogRecord) -> None:
        """See ``Snapshots``."""

    def finish(self) -> list[tuple[int, bytes]]:
        """See ``Snapshots``."""
        return [(seq, base64.b64decode(data)) for seq, data in json.loads(self._log.pipe.read())]


def _needed() -> Decode:
    """Reads what the index says, and a record whole from which an export leaves something out.

    It finds the same records unreadable as ``decode_envelope``: the fields that it does not read have no value that a
    version may not know.
    """
    decode_some = codec.envelope_decoder({**FIELDS, TaskTaken: ("task",)})

    def decode(data: bytes) -> Envelope:
        envelope = decode_some(data)
        return codec.decode_envelope(data) if isinstance(envelope.event, JobSubmitted) else envelope

    return decode


async def _write(log: SentLog, settings: Any) -> None:
    anonymized, header = settings["anonymized"], Header(**settings["header"])
    indexing = Indexing(_SentSnapshots(log))
    decode = codec.decode_envelope if anonymized else _needed()
    await export(log, Path(settings["path"]), header, change_of(anonymized), indexing, decode)


def main() -> int:
    """Do what a child does; returns the exit code."""
    gc.freeze()
    settings, log = received()
    try:
        if settings["child"] == "snapshots":
            sys.stdout.write(json.dumps(asyncio.run(_fold(log, change_of(settings["anonymized"])))))
        else:
            asyncio.run(_write(log, settings))
    except UserError as error:
        sys.stdout.write(json.dumps({"message": error.args[0], "hint": error.hint}))
    except (EOFError, BrokenPipeError):  # The parent was killed.
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
