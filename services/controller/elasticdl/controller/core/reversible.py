"""A state whose changes can be undone, as attempts that fail need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Reversible:
    """Changes are noted before they are made.

    Attributes:
        version: the same number: the same state, but for what is undone again.
        opened: the same number: the same state but for that, and for changes that were noted as closing ones.
    """

    def __init__(self) -> None:
        self.version = self.opened = self._versions = 0
        self._undo: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def mark(self) -> int:
        """A point to return to."""
        return len(self._undo)

    def undo(self, mark: int) -> None:
        """Return to a mark."""
        while len(self._undo) > mark:
            version, opened, undo, arguments = self._undo.pop()
            undo(*arguments)
            self.version, self.opened = version, opened

    def _note(self, undo: Callable[..., None], *arguments: Any, opens: bool = True) -> None:
        """A change begins; ``undo(*arguments)`` takes it back. ``opens``: there may be more room after it."""
        self._undo.append((self.version, self.opened, undo, arguments))
        self._versions = self.version = self._versions + 1
        if opens:
            self.opened = self._versions
