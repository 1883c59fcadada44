"""The process that finds where the time of a long log went, while its parent reads the log from the broker."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

from elasticdl.cli.jobs.sent_logs import RECORDS_MIN, EndedError, SentLog, answer, child, run_child, send
from elasticdl.shared.bus.ports import EncodedLog, LogReader
from elasticdl.shared.messages import codec
from elasticdl.views.wall_time.fold import FIELDS, WallTimeFold
from elasticdl.views.wall_time.values import WallTime, wall_time_of_plain, wall_time_to_plain


async def folded_wall_time(log: LogReader) -> WallTime:
    """Where the time of a log went, found by a child if the log is long and does not come from a file."""
    records = await log.last_seq()
    if records < RECORDS_MIN or not isinstance(log, EncodedLog):
        return await _folded(log, records)
    async with child(__name__, {"records": records}) as process:
        with suppress(EndedError):  # It has failed, which its answer says.
            await send(log, records, process)
        return wall_time_of_plain(json.loads(await answer(process)))


async def _folded(log: LogReader | SentLog, until: int) -> WallTime:
    """``until``: number of the last record."""
    fold = WallTimeFold()
    if until:
        take = fold.take
        async for record in log.read(0, codec.envelope_decoder(FIELDS), until):
            take(record)
    return fold.result()


async def _found(log: SentLog, settings: Any) -> str:
    return json.dumps(wall_time_to_plain(await _folded(log, settings["records"])))


if __name__ == "__main__":
    sys.exit(run_child(_found))
