"""How a run of a job begins on its log."""

from __future__ import annotations

import contextlib

from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import FencedError
from elasticdl.shared.messages.events import Envelope


async def open_run(log: EventLog, opening: Envelope) -> int:
    """Append the first word of a run, so that whoever else has one on its way is refused when it arrives.

    Returns:
        Its sequence number.

    Raises:
        TransientError: the broker stayed away longer than the settings allow.
        PermanentError: the log is full or gone.
    """
    while True:
        after = await log.last_seq()
        with contextlib.suppress(FencedError):  # The last words of those who are gone.
            return await log.append_next(opening, after=after)
