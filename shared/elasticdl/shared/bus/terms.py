"""Fencing of orders: a process that has obeyed a master refuses orders of earlier terms."""

from __future__ import annotations

from elasticdl.shared.errors import PermanentError, ProtocolError

TERM_MAX = 1 << 62
"""Highest term of an order: there is room for later ones in the log."""


class LaterTermError(PermanentError):
    """The receiver of an order has obeyed a later term. The sender ends, unless the log names it as the last one."""

    def __init__(self, message: str, *, latest: int) -> None:
        super().__init__(message)
        self.latest = latest


class Terms:
    """The latest term that one receiver of orders has obeyed."""

    def __init__(self) -> None:
        self._latest = 0

    def check(self, term: int) -> None:
        """Check an order's term. Raises ``LaterTermError``: an order of a later term was obeyed before."""
        if not 0 <= term <= TERM_MAX:
            raise ProtocolError(f"{term} is no term of a master")
        if term < self._latest:
            raise LaterTermError(f"the order is of term {term}, and term {self._latest} has begun", latest=self._latest)

    def remember(self, term: int) -> None:
        """An order was obeyed. One that was refused must not count: a bad message would silence every real master."""
        self._latest = max(self._latest, term)
