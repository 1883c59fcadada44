"""How far both directions of a reduction are: what arrives is added, and what may be sent is sent.

Positions count the bytes of a segment. Step ``k`` sends segment ``rank - k`` and receives segment ``rank - k - 1``; so
a step sends what the step before it has received. Sums travel in one of two ways, which each link chooses for itself:

- **as bytes** through the socket;
- **in shared memory**: the socket only carries how many bytes are ready, as u64 over all steps, and the next member
  reads them where they are. They are overwritten only by sums that contain what that member has added, so it has read
  them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import InvariantError
from elasticdl.worker.ring.kernels import ADD

Array = npt.NDArray[Any]
Segment = tuple[int, int]
"""First byte, and the one behind the last."""

CHUNK_BYTES = 1 << 18
"""Bytes that are received and added at a time: they stay in the cache of the core between both."""
_SEND_BYTES = 1 << 20
"""Bytes to be sent at a time: in between, arrived bytes are received."""
_SEGMENT_BYTES = 64
"""Segments begin at a multiple of this many bytes."""
_COUNT = struct.Struct("<Q")


class Sockets(Protocol):
    """The connections to both neighbours."""

    def send(self, data: memoryview) -> int:
        """Send what the next member takes at once; returns how many bytes."""
        ...

    def receive(self, target: memoryview) -> int:
        """Receive what is there from the previous member; returns how many bytes."""
        ...

    def wait(self, *, receives: bool | None, sends: bool | None) -> None:
        """Wait for either; None: that direction is complete."""
        ...


class Course:
    """The segments of an array in the order in which one member sends or receives them."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.step = self.done = self.before = 0
        """The present step, the bytes of its segment that are done, and the bytes of all steps before it."""
        self._skip()

    @property
    def is_complete(self) -> bool:
        """Whether all steps are done."""
        return self.step >= len(self.segments)

    @property
    def size(self) -> int:
        """Bytes of the present segment."""
        start, end = self.segments[self.step]
        return end - start

    @property
    def first(self) -> int:
        """The first byte of the array that is not done in this step."""
        return self.segments[self.step][0] + self.done

    def advance(self, count: int) -> None:
        """Some bytes are done."""
        self.done += count
        self._skip()

    def _skip(self) -> None:
        """Go to the next segment that is not empty when this one is done."""
        while not self.is_complete and self.done == self.size:
            self.before += self.done
            self.step, self.done = self.step + 1, 0


class Steps(NamedTuple):
    """The steps of a reduction, or of one of its phases. The array is added to in the first ``size - 1`` steps of all.

    Attributes:
        segments: each member's part of the array.
        stop: the number after that of the last step.
    """

    segments: list[Segment]
    first: int
    stop: int


class Reduction:
    """One reduction of one member, or one of its phases.

    Args:
        shared: the previous member's array, if it is read where it is; uint8.
        shares: whether the next member reads this one's array where it is.
    """

    def __init__(
        self,
        sockets: Sockets,
        place: tuple[int, int],
        array: Array,
        *,
        steps: Steps,
        shared: Array | None = None,
        shares: bool = False,
    ) -> None:
        rank, size = place
        self._sockets, self._array = sockets, array
        numbers, segments = range(steps.first, steps.stop), steps.segments
        self._adding_steps = size - 1 - steps.first
        self._outgoing = Course([segments[(rank - step) % size] for step in numbers])
        self._incoming = Course([segments[(rank - step - 1) % size] for step in numbers])
        self._add = ADD.get(array.dtype, _add_nothing)
        self._bytes = array.data.cast("B")
        self._send: Callable[[int], bool] = self._send_count if shares else self._send_bytes
        self._shares = shares
        self._unsent = memoryview(b"")
        """Of a count."""
        self._shared = shared.view(array.dtype) if shared is not None else None
        self._receive = self._receive_bytes if shared is None else self._receive_count
        self._ready = 0
        """Bytes that the previous member has told to be ready, over all steps."""
        self._counts = bytearray()
        self._scratch = np.empty(CHUNK_BYTES, np.uint8)
        self._scratch_bytes, self._scratch_values = self._scratch.data, self._scratch.view(array.dtype)
        self._part = 0
        """Bytes of an element in the scratch buffer whose rest has not come."""

    def run(self) -> None:
        """Receive, add and send until all is done."""
        incoming, outgoing = self._incoming, self._outgoing
        while True:
            has_moved = not incoming.is_complete and self._receive()
            sendable = self._sendable()
            if sendable or self._unsent:
                has_moved |= self._send(sendable)
            is_sent = outgoing.is_complete and not self._unsent
            if incoming.is_complete and is_sent:
                return
            if not has_moved:
                sends = None if is_sent else self._sendable() > 0 or bool(self._unsent)
                self._sockets.wait(receives=None if incoming.is_complete else True, sends=sends)

    def _sendable(self) -> int:
        """Bytes of the present segment that are worth being sent now."""
        incoming, outgoing = self._incoming, self._outgoing
        if outgoing.is_complete:
            return 0
        ready = outgoing.size
        if outgoing.step > 0:  # It is the segment that was received in the step before.
            if incoming.step < outgoing.step - 1:
                ready = 0
            elif incoming.step == outgoing.step - 1:
                ready = incoming.done
        if self._shares and ready < outgoing.size and ready - outgoing.done < CHUNK_BYTES:
            return 0  # The next member is not woken up for less.
        return ready - outgoing.done

    def _send_bytes(self, sendable: int) -> bool:
        first = self._outgoing.first
        sent = self._sockets.send(self._bytes[first : first + min(sendable, _SEND_BYTES)])
        self._outgoing.advance(sent)
        return sent > 0

    def _send_count(self, sendable: int) -> bool:
        if not self._unsent:
            outgoing = self._outgoing
            self._unsent = memoryview(_COUNT.pack(outgoing.before + outgoing.done + sendable))
            outgoing.advance(sendable)
        sent = self._sockets.send(self._unsent)
        self._unsent = self._unsent[sent:]
        return sent > 0

    def _receive_bytes(self) -> bool:
        incoming = self._incoming
        first, end = incoming.first, incoming.first + incoming.size - incoming.done
        if incoming.step < self._adding_steps:
            return self._receive_and_add(first, end)
        count = self._sockets.receive(self._bytes[first : min(end, first + _SEND_BYTES)])
        incoming.advance(count)
        return count > 0

    def _receive_and_add(self, first: int, end: int) -> bool:
        """Receive some of a segment and add it: whole elements, the rest of an element waits in the scratch buffer."""
        size = min(CHUNK_BYTES, end - first)
        count = self._sockets.receive(self._scratch_bytes[self._part : size])
        itemsize = self._array.itemsize
        filled = self._part + count
        whole = filled // itemsize
        self._part = filled - whole * itemsize
        if whole and count:
            begin = first // itemsize
            self._add(self._array[begin : begin + whole], self._scratch_values[:whole])
            if self._part:
                self._scratch[: self._part] = self._scratch[whole * itemsize : filled].copy()
            self._incoming.advance(whole * itemsize)
        return count > 0

    def _receive_count(self) -> bool:
        """Add or copy what is ready in the previous member's array."""
        incoming = self._incoming
        ready = self._ready - incoming.before - incoming.done
        if ready <= 0:
            return self._receive_counts()
        assert self._shared is not None
        itemsize = self._array.itemsize
        count = min(ready, incoming.size - incoming.done, CHUNK_BYTES)
        begin, end = incoming.first // itemsize, (incoming.first + count) // itemsize
        if incoming.step < self._adding_steps:
            self._add(self._array[begin:end], self._shared[begin:end])
        else:
            self._array[begin:end] = self._shared[begin:end]
        incoming.advance(count)
        return True

    def _receive_counts(self) -> bool:
        left = len(self._counts)
        # One count at a time: behind the last one, the next reduction begins.
        count = self._sockets.receive(self._scratch_bytes[: _COUNT.size - left])
        self._counts += self._scratch_bytes[:count]
        if len(self._counts) == _COUNT.size:
            self._ready = _COUNT.unpack(self._counts)[0]
            self._counts.clear()
        return count > 0


def _add_nothing(*_: Array) -> None:
    raise InvariantError("sums of 16 bits are added up")


def bounds_of(size_bytes: int, members: int) -> list[Segment]:
    """Each member's segment; together the whole array."""
    lines = -(-size_bytes // _SEGMENT_BYTES)
    ends = [min(size_bytes, lines * (member + 1) // members * _SEGMENT_BYTES) for member in range(members)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
