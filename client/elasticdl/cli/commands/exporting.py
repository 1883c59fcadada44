"""Exports a long event log with three processes: this one reads it from the broker, its children fold and write it.

One child, ``snapshots``, folds it as the master does and answers with core snapshots. The other one, ``write``, writes
the file, finds where the time went, and puts the snapshots that the parent passes to it into the index. Run as a
program, this module is either child. ``write`` prints the error if the file can't be written.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.sent_logs import RECORDS_MIN, EndedError, SentLog, answer, child, run_child, send
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
        try:
            await send(log, records, folder, writer)
            snapshots = await answer(folder)
            assert writer.stdin is not None
            writer.stdin.write(snapshots)
        except EndedError as ended:
            if ended.process is folder:
                await answer(folder)  # It has failed, which this raises.
        problem = await answer(writer)
    if problem:
        error = json.loads(problem)
        raise UserError(error["message"], hint=error["hint"])
    return header


async def _fold(log: SentLog, change: Callable[[Envelope], Envelope]) -> str:
    snapshots = Snapshots()
    async for record in log.read(0):
        snapshots.take(changed(record, change))
    return json.dumps([(seq, base64.b64encode(data).decode()) for seq, data in snapshots.finish()])


class _SentSnapshots:
    """The core snapshots that the other child has made. See ``SnapshotSource``."""

    def __init__(self, log: SentLog) -> None:
        self._log = log

    def take(self, record: LogRecord) -> None:
        """See ``SnapshotSource``."""

    def finish(self) -> list[tuple[int, bytes]]:
        """See ``SnapshotSource``."""
        sent = self._log.pipe.read()
        if not sent:
            raise EOFError
        return [(seq, base64.b64decode(data)) for seq, data in json.loads(sent)]


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


async def _write(log: SentLog, settings: Any) -> str:
    """Returns the error as JSON if the file can't be written."""
    anonymized, header = settings["anonymized"], Header(**settings["header"])
    indexing = Indexing(_SentSnapshots(log))
    decode = codec.decode_envelope if anonymized else _needed()
    try:
        await export(log, Path(settings["path"]), header, change_of(anonymized), indexing, decode)
    except UserError as error:
        return json.dumps({"message": error.args[0], "hint": error.hint})
    return ""


async def _answer(log: SentLog, settings: Any) -> str:
    if settings["child"] == "snapshots":
        return await _fold(log, change_of(settings["anonymized"]))
    return await _write(log, settings)


if __name__ == "__main__":
    sys.exit(run_child(_answer))
