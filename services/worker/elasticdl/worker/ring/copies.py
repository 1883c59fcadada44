"""Copies of the state for members that join. Those that come while one is sent share it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence

from elasticdl.shared.wire.buffers import Bytes
from elasticdl.worker.ring.core.messages import State
from elasticdl.worker.ring.core.positions import Position

Save = Callable[[], Callable[[], Sequence[Bytes]]]
"""See ``ReplicaState.save``."""


class Copy:
    """A state as it was at a position. Any thread may call; the first one makes the copy, the others wait for it."""

    def __init__(self, position: Position, generation: int, make: Callable[[], Sequence[Bytes]]) -> None:
        self.position, self.generation = position, generation
        self._make: Callable[[], Sequence[Bytes]] | None = make
        self._parts: Sequence[Bytes] = ()
        self._lock = threading.Lock()

    def state(self) -> State:
        """The state as a message."""
        with self._lock:
            if self._make is not None:
                self._parts, self._make = self._make(), None
        return State(position=self.position, parts=self._parts)


class Copies:
    """Remembers the last copy for as long as a thread sends it: then its memory is free. Not thread-safe."""

    def __init__(self) -> None:
        self._last: weakref.ref[Copy] | None = None

    def take(self, position: Position, generation: int, *, since: int, save: Save) -> Copy:
        """The copy that is being sent, if it is of this generation and has at least ``since`` rounds; or a new one.

        Args:
            position: that of the state now.
            save: copies it.
        """
        last = self._last() if self._last is not None else None
        if last is not None and last.generation == generation and last.position.step >= since:
            return last
        copy = Copy(position, generation, save())
        self._last = weakref.ref(copy)
        return copy
