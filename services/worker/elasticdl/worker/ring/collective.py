"""All-reduce over a ring of sockets: each member sends to the next one only, and receives from the previous one.

The array is cut into as many segments as there are members. In ``n - 1`` steps each segment travels round the ring and
every member adds its part to it (reduce-scatter); in ``n - 1`` further steps the sums travel round (all-gather). So
each element is summed by one member, and all members have the same bits.

What a member sends in a step is what it has received, and added to, in the step before. So both directions are streams
without frames: an element is sent as soon as the one before it on its way has been received and added. One thread
serves both: it receives what is there, adds it, and sends what it may; when neither is possible, it waits for either.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.worker.ring.kernels import ADD

Array = npt.NDArray[Any]

_CHUNK_BYTES = 1 << 18
"""Bytes that are received and added at a time: they stay in the cache of the core between both."""
_SEND_BYTES = 1 << 20
"""Bytes to be sent at a time: in between, arrived bytes are received."""
_SEGMENT_BYTES = 64
"""Segments begin at a multiple of this many bytes."""
_HEADER = struct.Struct("<QQQ")
_WAKE_UP_MS = 1000
"""A wait is ended by the peer or by ``Ring.abort``. In between it only checks for ``abort``."""


class RingBrokenError(TransientError):
    """A neighbour is gone, or the ring was told to stop. The array is undefined."""


class Ring:
    """One member's place in a ring of two or more. One thread reduces; any thread may abort.

    Args:
        following: connected to the next member, which receives from it.
        preceding: connected to the previous member.
    """

    def __init__(self, rank: int, size: int, *, following: socket.socket, preceding: socket.socket) -> None:
        self.rank, self.size = rank, size
        self._following, self._preceding = following, preceding
        self.scratch = np.empty(_CHUNK_BYTES, np.uint8)
        self._is_aborted = False
        for connected in (following, preceding):
            connected.setblocking(False)

    def all_reduce(self, array: Array, *, number: int = 0) -> None:
        """Replace an array by its sum over all members, in place.

        Args:
            array: float32 or float64, contiguous (n,), of equal size on all members, at least one element.
            number: equal on all members; tells one reduction from another one.

        Raises:
            RingBrokenError: a neighbour is gone. The connections are closed, so that the other neighbour notices.
            ProtocolError: the neighbour reduces something else; the connections are closed, too.
        """
        try:
            self._exchange_headers(number, array)
            _Stream(self, array).run()
        except OSError as error:
            self.abort()
            raise RingBrokenError(f"the ring broke: {error.strerror or error}") from error
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """End both connections at once; a thread in ``all_reduce`` gets ``RingBrokenError``. Any thread may call."""
        self._is_aborted = True
        for connected in (self._following, self._preceding):
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Abort and free the sockets; no thread may be in ``all_reduce``."""
        self.abort()
        self._following.close()
        self._preceding.close()

    def _exchange_headers(self, number: int, array: Array) -> None:
        """Check that the previous member reduces the same; small, so the kernel takes it at once."""
        header = memoryview(_HEADER.pack(number, array.size, array.itemsize))
        while header:
            sent = self.send([header])
            header = header[sent:]
            if not sent:
                self.wait(receives=None, sends=True)
        received = bytearray()
        while len(received) < _HEADER.size:
            target = bytearray(_HEADER.size - len(received))
            count = self.receive(memoryview(target))
            received += target[:count]
            if not count:
                self.wait(receives=True, sends=False)
        if bytes(received) != _HEADER.pack(number, array.size, array.itemsize):
            found = _HEADER.unpack(received)
            raise ProtocolError(f"the previous member reduces {found}, this one {(number, array.size, array.itemsize)}")

    def send(self, parts: Sequence[memoryview]) -> int:
        """Send what the next member takes at once; returns how many bytes."""
        try:
            return self._following.sendmsg(parts)
        except BlockingIOError:
            return 0

    def receive(self, target: memoryview) -> int:
        """Receive what is there; returns how many bytes. Raises ``RingBrokenError`` at the end of the stream."""
        try:
            count = self._preceding.recv_into(target)
        except BlockingIOError:
            return 0
        if not count:
            raise RingBrokenError("the previous member has closed its connection")
        return count

    def wait(self, *, receives: bool | None, sends: bool | None) -> None:
        """Wait until bytes can be received, or sent, or a neighbour is gone that is still needed.

        Args:
            receives: None: everything has come. Then the previous member may leave.
            sends: False: nothing can be sent yet; None: everything is sent, and the next member may leave.
        """
        poll = select.poll()
        if receives is not None:
            poll.register(self._preceding, select.POLLIN)
        if sends is not None:
            poll.register(self._following, select.POLLOUT if sends else 0)
        for descriptor, event in poll.poll(_WAKE_UP_MS):
            if event & (select.POLLERR | select.POLLHUP) and descriptor == self._following.fileno():
                raise RingBrokenError("the next member has closed its connection")
        if self._is_aborted:
            raise RingBrokenError("the ring was told to stop")


class _Stream:
    """One reduction: how far both directions are.

    Positions count bytes over all steps: step ``k`` sends segment ``rank - k`` and receives segment ``rank - k - 1``.
    """

    def __init__(self, ring: Ring, array: Array) -> None:
        self._ring = ring
        rank, size = ring.rank, ring.size
        self._steps = 2 * (size - 1)
        self._adding_steps = size - 1
        bounds = _bounds(array, size)
        self._sent_segments = [bounds[(rank - step) % size] for step in range(self._steps)]
        self._received_segments = [bounds[(rank - step - 1) % size] for step in range(self._steps)]
        self._array = array
        self._bytes = array.data.cast("B")
        self._add = ADD[array.dtype]
        self._send_step = self._sent = self._receive_step = self._received = 0
        """``_sent``, ``_received``: bytes of the segment of the present step."""
        self._scratch = ring.scratch
        self._scratch_bytes = self._scratch.data
        self._scratch_values = self._scratch.view(array.dtype)

    def run(self) -> None:
        """Receive, add and send until all is done."""
        ring = self._ring
        self._skip_empty()
        while self._receive_step < self._steps or self._send_step < self._steps:
            has_moved = self._receive()
            has_moved |= self._send()
            if not has_moved:
                ring.wait(
                    receives=True if self._receive_step < self._steps else None,
                    sends=self._sendable() > 0 if self._send_step < self._steps else None,
                )

    def _sendable(self) -> int:
        """Bytes of the present sending step that may be sent now."""
        if self._send_step >= self._steps:
            return 0
        start, end = self._sent_segments[self._send_step]
        ready = end - start
        if self._send_step > 0:  # It is the segment that was received in the step before.
            if self._receive_step < self._send_step - 1:
                ready = 0
            elif self._receive_step == self._send_step - 1:
                ready = self._received
        return ready - self._sent

    def _send(self) -> bool:
        ready = min(self._sendable(), _SEND_BYTES)
        if ready <= 0:
            return False
        start = self._sent_segments[self._send_step][0] + self._sent
        sent = self._ring.send([self._bytes[start : start + ready]])
        self._sent += sent
        self._skip_empty()
        return sent > 0

    def _receive(self) -> bool:
        if self._receive_step >= self._steps:
            return False
        start, end = self._received_segments[self._receive_step]
        if self._receive_step >= self._adding_steps:
            first = start + self._received
            count = self._ring.receive(self._bytes[first : min(end, first + _SEND_BYTES)])
            self._received += count
        else:
            count = self._receive_and_add(start, end)
        self._skip_empty()
        return count > 0

    def _receive_and_add(self, start: int, end: int) -> int:
        """Receive some of a segment and add it: whole elements, the rest of an element waits in the scratch buffer."""
        begin = self._received + start
        size = min(_CHUNK_BYTES, end - begin)
        count = self._ring.receive(self._scratch_bytes[self._part : size])
        itemsize = self._array.itemsize
        filled = self._part + count
        whole = filled // itemsize
        if whole:
            first = begin // itemsize
            self._add(self._array[first : first + whole], self._scratch_values[:whole])
            left = filled - whole * itemsize
            if left:
                self._scratch[:left] = self._scratch[filled - left : filled].copy()
            self._part = left
            self._received += whole * itemsize
        else:
            self._part = filled
        return count

    _part = 0
    """Bytes of an element in the scratch buffer whose rest has not come."""

    def _skip_empty(self) -> None:
        """Go to the next step when the segment of this one is done."""
        while self._send_step < self._steps and self._sent == _size(self._sent_segments[self._send_step]):
            self._send_step, self._sent = self._send_step + 1, 0
        while self._receive_step < self._steps and self._received == _size(self._received_segments[self._receive_step]):
            self._receive_step, self._received = self._receive_step + 1, 0


def _size(segment: tuple[int, int]) -> int:
    return segment[1] - segment[0]


def _bounds(array: Array, members: int) -> list[tuple[int, int]]:
    """First byte of each member's segment, and the one behind it; together the whole array."""
    lines = -(-array.nbytes // _SEGMENT_BYTES)
    ends = [min(array.nbytes, lines * (member + 1) // members * _SEGMENT_BYTES) for member in range(members)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
