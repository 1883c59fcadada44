"""Orders of masters that were overtaken: whoever has obeyed a later one refuses them."""

from __future__ import annotations

from elasticdl.shared.errors import PermanentError


class Terms:
    """What one receiver of orders has heard of masters' terms."""

    def __init__(self) -> None:
        self._latest = 0

    def admit(self, term: int) -> None:
        """Take note of an order's term.

        Raises:
            PermanentError: an order of a later term was obeyed before; this one must not be.
        """
        if term < self._latest:
            raise PermanentError(f"the order is of term {term}, and term {self._latest} has begun")
        self._latest = term
