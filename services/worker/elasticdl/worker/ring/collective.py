"""All-reduce over a ring: each member sends to the next one only, and receives from the previous one.

The array is cut into as many segments as there are members. In ``n - 1`` steps each segment travels round the ring and
every member adds its part to it (reduce-scatter); in ``n - 1`` further steps the sums travel round (all-gather). So
each element is summed by one member, and all members have the same bits.

What a member sends in a step is what it has received, and added to, in the step before. So both directions are streams:
an element is sent as soon as the one before it on its way has been received and added. One thread serves both: it
receives what is there, adds it, and sends what it may; when neither is possible, it waits for either.

Small arrays travel round whole, in ``n - 1`` steps instead of twice as many, and each member adds all of them up in the
same order, to the same bits.

Members on one machine read each other's sums in shared memory (``blocks``): each link finds out for itself whether that
works. The socket then carries only how many bytes are ready, so a break is noticed in the same way.

Sums may be rounded to 16 bits (``half``). Members add up in float32, the one that has all of a segment rounds it, and
the rounded segments travel round. They always go through the sockets.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from collections import deque

import numpy as np

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.worker.ring.blocks import KEY_BYTES, Block, Mapped
from elasticdl.worker.ring.half import Half
from elasticdl.worker.ring.streams import Array, Reduction, Steps, bounds_of

SHARED_BYTES_MIN = 1 << 16
"""Smaller arrays go through the socket: it is faster than to tell where they are."""
GATHERED_BYTES_MAX = 1 << 15
"""Larger arrays are added up in segments. With more than four members, so are those of which a member would send more
than three such arrays."""
_HEADER = struct.Struct(f"<QQQQQ{KEY_BYTES}s")
"""Number, elements and bytes per element; process, descriptor (0: bytes are sent) and key of the block."""
_NO_KEY = bytes(KEY_BYTES)
_SHARES, _STREAMS, _READ = b"s", b"t", b"r"
"""Answers to the previous member: its block can be read; it can't; it was read."""
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
        self._rank, self._size = rank, size
        self._following, self._preceding = following, preceding
        self._is_aborted = False
        self._is_shared: bool | None = None
        """Whether the next member reads this one's blocks; None: it has not been asked."""
        self._has_answered = False
        self._mapped = Mapped()
        self._unread: deque[Block] = deque()
        """Blocks that the next member has not said to have read."""
        for connected in (following, preceding):
            connected.setblocking(False)

    def all_reduce(
        self, array: Array, *, number: int = 0, block: Block | None = None, half: Half | None = None
    ) -> None:
        """Replace an array by its sum over all members, in place.

        Args:
            array: float32 or float64, contiguous (n,), of equal size on all members, at least one element.
            number: equal on all members; tells one reduction from another one.
            block: the memory of the array, from its beginning; None: it is not shared. The array must not change until
                the block's ``unread`` is 0, and never more after an error.
            half: round float32 sums before they travel, as all members do; None: they travel as they are.

        Raises:
            RingBrokenError: a neighbour is gone. The connections are closed, so that the other neighbour notices.
            ProtocolError: the neighbour reduces something else; the connections are closed, too.
        """
        try:
            shared, is_shared = self._agree(number, array, block)
            if half is None and array.nbytes * max(3, self._size - 1) <= 3 * GATHERED_BYTES_MAX:
                self._gather_and_add(array)
            elif half is None:
                self._reduce(array, (0, 2 * self._size - 2), shared, shares=is_shared)
            else:
                self._reduce(array, (0, self._size - 1), shared, shares=is_shared)
                self._gather_rounded(array, half)
            if shared is not None:
                self._answer(_READ)
            self._collect_answers()
        except OSError as error:
            self.abort()
            raise RingBrokenError(f"the ring broke: {error.strerror or error}") from error
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """End both connections at once; a thread in ``all_reduce`` gets ``RingBrokenError``. Any thread may call."""
        self._is_aborted = True
        for block in list(self._unread):
            block.is_lost = True
        for connected in (self._following, self._preceding):
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Abort and free the sockets; no thread may be in ``all_reduce``."""
        self.abort()
        self._following.close()
        self._preceding.close()

    # --- what a reduction uses ----------------------------------------------------------------------------------------

    def send(self, data: memoryview) -> int:
        """Send what the next member takes at once; returns how many bytes."""
        try:
            return self._following.send(data)
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

    def _reduce(self, array: Array, phase: tuple[int, int], shared: Array | None, *, shares: bool) -> None:
        steps = Steps(bounds_of(array.nbytes, self._size), *phase)
        Reduction(self, (self._rank, self._size), array, steps=steps, shared=shared, shares=shares).run()

    def _gather_and_add(self, array: Array) -> None:
        """Get the arrays of all members, and add them up in the order of the ring."""
        parts = np.empty((self._size, array.size), array.dtype)
        parts[(self._rank + 1) % self._size] = array
        segments = [(part * array.nbytes, (part + 1) * array.nbytes) for part in range(self._size)]
        steps = Steps(segments, self._size - 1, 2 * self._size - 2)
        Reduction(self, (self._rank, self._size), parts.reshape(-1), steps=steps).run()
        array[:] = parts[0]
        for part in parts[1:]:
            array += part

    def _gather_rounded(self, array: Array, half: Half) -> None:
        """Round the segment that this member has added up, and get those of the others."""
        segments = [(start // 2, end // 2) for start, end in bounds_of(array.nbytes, self._size)]
        rounded = np.empty(array.size, np.uint16)
        start, end = segments[(self._rank + 1) % self._size]
        rounded[start // 2 : end // 2] = half.round(array[start // 2 : end // 2])
        steps = Steps(segments, self._size - 1, 2 * self._size - 2)
        Reduction(self, (self._rank, self._size), rounded, steps=steps).run()
        half.restore(rounded, array)

    # --- how sums travel ----------------------------------------------------------------------------------------------

    def _agree(self, number: int, array: Array, block: Block | None) -> tuple[Array | None, bool]:
        """Tell the next member what is reduced, and check that the previous one reduces the same.

        Returns:
            The previous member's array if it can be read where it is; and whether the next member reads this one's.
        """
        what = number, array.size, array.itemsize
        is_offered = block is not None and block.descriptor > 0 and self._is_shared is not False
        if block is None or not is_offered or array.nbytes < SHARED_BYTES_MIN:
            block = None
            self._send_all(_HEADER.pack(*what, 0, 0, _NO_KEY))
        else:
            self._show(block)
            self._send_all(_HEADER.pack(*what, os.getpid(), block.descriptor, block.key))
        header = _HEADER.unpack(self._receive_all(_HEADER.size))
        if header[:3] != what:
            raise ProtocolError(f"the previous member reduces {header[:3]}, this one {what}")
        process, descriptor, key = header[3:]
        shared = self._mapped.open(process, descriptor, key, array.nbytes) if descriptor else None
        if descriptor and not self._has_answered:
            self._has_answered = True
            self._answer(_STREAMS if shared is None else _SHARES)
        elif descriptor and shared is None:
            raise RingBrokenError("the memory of the previous member can't be read any more")
        if block is not None and self._is_shared is None:
            self._is_shared = self._receive_answer() == _SHARES
            if not self._is_shared:
                self._unread.pop().unread -= 1
        return shared, block is not None and self._is_shared is True

    def _show(self, block: Block) -> None:
        block.unread += 1
        self._unread.append(block)

    def _send_all(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            sent = self.send(left)
            left = left[sent:]
            if not sent:
                self.wait(receives=None, sends=True)

    def _receive_all(self, size: int) -> bytes:
        received = bytearray(size)
        target = memoryview(received)
        while target:
            count = self.receive(target)
            target = target[count:]
            if not count:
                self.wait(receives=True, sends=False)
        return bytes(received)

    def _answer(self, answer: bytes) -> None:
        """Tell the previous member; so few bytes that the kernel takes them at once."""
        self._preceding.send(answer)

    def _receive_answer(self) -> bytes:
        while True:
            with contextlib.suppress(BlockingIOError):
                if answer := self._following.recv(1):
                    return answer
                raise RingBrokenError("the next member has closed its connection")
            poll = select.poll()
            poll.register(self._following, select.POLLIN)
            poll.poll(_WAKE_UP_MS)
            if self._is_aborted:
                raise RingBrokenError("the ring was told to stop")

    def _collect_answers(self) -> None:
        """Note which blocks the next member has read; it may have left since."""
        with contextlib.suppress(OSError):
            for _ in self._following.recv(64):
                self._unread.popleft().unread -= 1
