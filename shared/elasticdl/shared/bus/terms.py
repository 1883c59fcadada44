"""Fencing of orders: a process that has obeyed a master refuses orders of earlier terms."""

from __future__ import annotations

from elasticdl.shared.errors import PermanentError


class Terms:
    """The latest term that one receiver of orders has seen."""

    def __init__(self) -> None:
        self._latest = 0

    def admit(self, term: int) -> None:
        """Check an order's term, and remember it.

        Raises:
            PermanentError: an order of a later term was obeyed before.
        """
        if term < self._latest:
            raise PermanentError(f"the order is of term {term}, and term {self._latest} has begun")
        self._latest = term
