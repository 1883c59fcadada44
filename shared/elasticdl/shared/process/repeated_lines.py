"""Log lines that a peer can cause: said once, then counted, so that no peer can fill the disk with them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.shared.process.clock import Clock, SystemClock

if TYPE_CHECKING:
    from elasticdl.shared.process.logs import Logger

INTERVAL_S = 60.0
"""Seconds between two lines of the same kind."""


@dataclass(slots=True)
class _Kind:
    next_s: float = 0.0
    left_out: int = 0


class RepeatedLines:
    """Logs the first line of each kind at once, and later ones at most once per interval, with the number left out.

    Any thread may call. A kind is the text of the line; peers, reasons and numbers are its fields.
    """

    def __init__(self, log: Logger, clock: Clock | None = None) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}

    def warning(self, text: str, **fields: object) -> None:
        """Log a warning, or only count it."""
        now_s = self._clock.monotonic()
        with self._lock:
            kind = self._kinds.setdefault(text, _Kind())
            if kind.next_s and now_s < kind.next_s:
                kind.left_out += 1
                return
            left_out, kind.left_out, kind.next_s = kind.left_out, 0, now_s + INTERVAL_S
        if left_out:
            fields["others_like_it"] = left_out
        self._log.warning(text, **fields)
