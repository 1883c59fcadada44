"""Core snapshots of a recorded log, as the master that wrote it would have kept them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from elasticdl.master.core import State
from elasticdl.master.core.fold import Fold
from elasticdl.master.snapshot_writer import CoreSnapshotWriter
from elasticdl.shared.bus.ports import LargeValues
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.views.reading import Reading


async def keep_snapshots(register: LargeValues, records: Iterable[LogRecord], every: int) -> None:
    """Fold a log, and let the writer of the master see each state.

    Args:
        every: records between two snapshots.
    """
    writer, folding = CoreSnapshotWriter(register, every, Reading()), Fold()
    writing = asyncio.create_task(writer.run())
    for record in records:
        folding.take(record)
        writer.offer(folding.state)
        while writer.is_busy:
            await asyncio.sleep(0)
    writing.cancel()


def state_at(records: Iterable[LogRecord], snapshot: State) -> State:
    """What a snapshot has to be: the fold of the inputs that it has seen, and of the decisions after them."""
    folding = Fold()
    for record in records:
        last = snapshot.master_seq if isinstance(record.envelope.event, Decided) else snapshot.seq
        if record.seq <= last:
            folding.take(record)
    return folding.finish()
