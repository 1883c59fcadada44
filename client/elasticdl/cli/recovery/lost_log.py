"""How much of a job's event log is lost, by what the launcher has seen of it. ``elasticdl.ps`` recovers the rest."""

from __future__ import annotations

from elasticdl.cli.jobs.run_directory import LogEnd
from elasticdl.shared.messages.events import LogRecord, LostLog


def lost_part(left: LogRecord | None, seen: LogEnd) -> LostLog | None:
    """The part of a log that is gone; None: nothing.

    Args:
        left: the last record of the log; None: the log is empty.
        seen: the end of the log as the launcher last saw it.
    """
    if left and left.seq >= seen.seq:
        return None
    return LostLog(
        after_s=left.envelope.time_s if left else 0.0,
        until_s=seen.time_s,
        records=max(0, seen.seq - (left.seq if left else 0)),
    )
