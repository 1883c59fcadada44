"""The process that finds where the time of a long log went, while its parent reads the log from the broker.

The parent folds the first records itself while the child starts, and sends it what it has found.
"""

from __future__ import annotations

import json
import pickle
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
    if records <= RECORDS_MIN or not isinstance(log, EncodedLog):
        return (await _folded(WallTimeFold(), log, 0, records)).result()
    async with child(__name__, {"records": records, "after": RECORDS_MIN}) as process:
        begun = await _folded(WallTimeFold(), log, 0, RECORDS_MIN)
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(begun))
        with suppress(EndedError):  # It has failed, which its answer says.
            await send(log, records, process, after=RECORDS_MIN)
        return wall_time_of_plain(json.loads(await answer(process)))


async def _folded(fold: WallTimeFold, log: LogReader | SentLog, after: int, until: int) -> WallTimeFold:
    """``until``: number of the last record."""
    if until > after:
        take = fold.take
        async for record in log.read(after, codec.envelope_decoder(FIELDS), until):
            take(record)
    return fold


async def _found(log: SentLog, settings: Any) -> str:
    begun: WallTimeFold = pickle.load(log.pipe)  # noqa: S301  The parent sends it.
    return json.dumps(wall_time_to_plain((await _folded(begun, log, settings["after"], settings["records"])).result()))


if __name__ == "__main__":
    sys.exit(run_child(_found))
