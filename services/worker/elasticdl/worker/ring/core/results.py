"""The results of the last rounds for members that lack them: one after a break, all since its copy for a joiner."""

from __future__ import annotations

from collections import deque
from typing import Any

from elasticdl.worker.ring.core.messages import Result
from elasticdl.worker.ring.core.positions import Position

KEPT_BYTES_MAX = 256 << 20
"""Bytes of results that a leader keeps for joiners. One that falls further behind copies the state a second time."""


class Results:
    """Results without a gap; the last one leads to the present state.

    Args:
        bytes_max: beyond it only the last result is kept.
    """

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: deque[Result] = deque()
        self._sent: set[int] = set()
        """Steps whose results have been given to another member, which may still be read."""

    @property
    def last(self) -> Result | None:
        """The result of the last committed round, if it is kept."""
        return self._kept[-1] if self._kept else None

    def first_step(self, present: Position) -> int:
        """The first step whose state the kept results bring to the present one."""
        return self._kept[0].before.step if self._kept else present.step

    def since(self, position: Position, present: Position) -> list[Result] | None:
        """What leads from a position to the present one: nothing, or results; None: only a copy of the state does."""
        if position.is_same(present):
            return []
        for number, result in enumerate(self._kept):
            if result.before.is_same(position):
                return list(self._kept)[number:]
        return None

    def add(self, result: Result, *, keep_from: int | None) -> list[Any]:
        """Keep a new result, and drop those before the step ``keep_from``, or all others.

        Returns:
            Gradients of dropped results that were never given to another member.
        """
        self._kept.append(result)
        is_too_much = sum(kept.size_bytes for kept in self._kept) > self._bytes_max
        unneeded = []
        while len(self._kept) > 1 and (is_too_much or keep_from is None or self._kept[0].before.step < keep_from):
            dropped = self._kept.popleft()
            if dropped.before.step not in self._sent and dropped.gradient is not None:
                unneeded.append(dropped.gradient)
            self._sent.discard(dropped.before.step)
        return unneeded

    def give(self, result: Result) -> Result:
        """Note that a result is given to another member."""
        self._sent.add(result.before.step)
        return result

    def clear(self) -> None:
        """Drop all: they are not needed, or the state is another one now."""
        self._kept.clear()
        self._sent.clear()
