"""Exports a long event log with several processes: this one reads it from the broker, its children write and fold it.

One child, ``write``, writes the file, finds where the time went, and puts the core snapshots that the parent passes to
it into the index. These are the master's. If they are not usable, or too few, another child, ``snapshots``, folds the
log as the master does and answers with others. Run as a program, this module is either child. ``write`` prints the
error if the file can't be written.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from operator import sub
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.sent_logs import RECORDS_MIN, EndedError, SentLog, answer, child, run_child, send
from elasticdl.shared.bus.ports import JobReader
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope, LogRecord, MessageUnreadable, TaskTaken
from elasticdl.shared.names import JobId
from elasticdl.views.files.anonymous import Anonymizer
from elasticdl.views.files.exported_log import ExportedLog, Header, changed, export, snapshot_without_secrets
from elasticdl.views.files.log_index import Indexing, Snapshots
from elasticdl.views.reading import exact, snapshot_states
from elasticdl.views.wall_time.fold import FIELDS

FOLDED_MAX = 50_000
"""Most records that a reader of the file has to fold after a core snapshot: that takes less than a second."""


def change_of(anonymized: JobId | None) -> Callable[[Envelope], Envelope] | None:
    """What an export does to each envelope; ``anonymized``: the job whose names it replaces."""
    return Anonymizer(anonymized).envelope if anonymized else None


async def export_log(job: JobReader, path: Path, header: Header, anonymized: JobId | None) -> Header:
    """As ``exported_log.export``, with children if the log is long."""
    log = job.log
    records = await log.last_seq()
    if records < RECORDS_MIN or isinstance(log, ExportedLog):  # A file is read in a tenth of the time of a broker.
        return await export(log, path, header, change_of(anonymized))
    header = replace(header, records=records)
    settings = {"path": str(path), "header": asdict(header), "anonymized": anonymized, "records": records}
    async with AsyncExitStack() as children:
        writer = await children.enter_async_context(child(__name__, settings | {"child": "write"}))
        folder = None
        # While the child starts. The state of an anonymous log is another one.
        snapshots = b"" if anonymized else await _masters(job, records)
        if not snapshots:
            folder = await children.enter_async_context(child(__name__, settings | {"child": "snapshots"}))
        try:
            await send(log, records, *([folder] if folder else []), writer)
            if folder:
                snapshots = await answer(folder)
            assert writer.stdin is not None
            writer.stdin.write(snapshots)
        except EndedError as ended:
            if folder and ended.process is folder:
                await answer(folder)  # It has failed, which this raises.
        problem = await answer(writer)
    if problem:
        error = json.loads(problem)
        raise UserError(error["message"], hint=error["hint"])
    return header


async def _masters(job: JobReader, records: int) -> bytes:
    """The core snapshots that the master has kept, and one of the end; none if readers had to fold much between them.

    A state with unreadable messages is left out: this version may read them.
    """
    found = [each async for each in snapshot_states(job, records)][::-1]
    seen = [max(state.seq, state.master_seq) for state, _ in found]
    if max(map(sub, [*seen, records], [0, *seen])) > FOLDED_MAX:
        return b""
    found.append(((await exact(job, records)).state, b""))
    return _sent(
        (seq, snapshot_without_secrets(state, data))
        for seq, (state, data) in zip([*seen, records], found, strict=True)
        if state.spec is not None and not state.unreadable_messages.count
    ).encode()


async def _fold(log: SentLog, change: Callable[[Envelope], Envelope] | None) -> str:
    snapshots = Snapshots()
    async for record in log.read(0):
        snapshots.take(changed(record, change))
    return _sent(snapshots.finish())


def _sent(snapshots: Iterable[tuple[int, bytes]]) -> str:
    return json.dumps([(seq, base64.b64encode(data).decode()) for seq, data in snapshots])


class _SentSnapshots:
    """The core snapshots that the parent sends. See ``SnapshotSource``."""

    def __init__(self, log: SentLog) -> None:
        self._log = log
        self._readable = sys.maxsize
        """The records below this number can be read: the fold of the others knows more than those of the master."""

    def take(self, record: LogRecord) -> None:
        """See ``SnapshotSource``."""
        if type(record.envelope.event) is MessageUnreadable:
            self._readable = min(self._readable, record.seq)

    def finish(self) -> list[tuple[int, bytes]]:
        """See ``SnapshotSource``."""
        sent = self._log.pipe.read()
        if not sent:
            raise EOFError
        return [(seq, base64.b64decode(data)) for seq, data in json.loads(sent) if seq < self._readable]


async def _write(log: SentLog, settings: Any) -> str:
    """Returns the error as JSON if the file can't be written."""
    anonymized, header = settings["anonymized"], Header(**settings["header"])
    indexing = Indexing(_SentSnapshots(log))
    # It finds the same records unreadable as ``decode_envelope``: the fields that it does not read have no value that a
    # version may not know.
    decode = codec.decode_envelope if anonymized else codec.envelope_decoder({**FIELDS, TaskTaken: ("task",)})
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
