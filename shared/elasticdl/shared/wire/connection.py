"""One blocking socket that carries frames."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.wire.buffers import BufferPool, Bytes
from elasticdl.shared.wire.frames import (
    HEADER_BYTES,
    FrameLimits,
    Tensor,
    decode_header,
    decode_layout,
    encode,
    table_bytes,
)

_BUFFERS_PER_CALL_MAX = 512
"""``sendmsg`` takes IOV_MAX (1024 on Linux) buffers at most."""


class ConnectionLostError(TransientError):
    """The peer is gone: reset, closed, or silent beyond the deadline."""


class Frame:
    """A received frame. Its tensors are views of a pooled buffer: call ``release`` after the last use of them.

    Attributes:
        request: number of the request that it is or answers.
        meta: protobuf bytes.
        tensors: flat arrays in the order sent.
        sender: number of the connection that a server got it by.
    """

    __slots__ = ("_buffer", "_pool", "meta", "request", "sender", "tensors")

    def __init__(
        self, request: int, meta: bytes, tensors: tuple[Tensor, ...], pool: BufferPool, buffer: Bytes | None
    ) -> None:
        self.request = request
        self.meta = meta
        self.tensors = tensors
        self.sender = 0
        self._pool = pool
        self._buffer = buffer

    def release(self) -> None:
        """Give the buffer back; the tensors must not be touched any more. A second call does nothing."""
        buffer, self._buffer, self.tensors = self._buffer, None, ()
        if buffer is not None:
            self._pool.give_back(buffer)


class Connection:
    """Frames over one TCP socket; one thread may send while another receives.

    Args:
        connected: the socket; owned from here on.
        pool: where receive buffers come from.
        limits: what a frame may be at most, in both directions.
        frame_deadline_s: seconds that one frame may take from its first byte to its last, and one send.
    """

    def __init__(
        self, connected: socket.socket, *, pool: BufferPool, limits: FrameLimits, frame_deadline_s: float
    ) -> None:
        self._socket = connected
        self._pool = pool
        self._frame_deadline_s = frame_deadline_s
        self.limits = limits
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_dead_peers(connected, frame_deadline_s)
        # A timeout is per socket and not per direction, so it is set once for both and read loops count the rest.
        connected.settimeout(frame_deadline_s)

    def send(self, request: int, meta: bytes, tensors: Sequence[Tensor] = ()) -> None:
        """Send one frame; returns when the kernel has taken it all, after which the tensors may change.

        Raises:
            ConnectionLostError: reset, or not taken within the deadline; the connection is of no use any more.
        """
        buffers = [memoryview(part) for part in encode(request, meta, tensors, self.limits)]
        deadline_s = time.monotonic() + self._frame_deadline_s
        try:
            while buffers:
                sent = self._socket.sendmsg(buffers[:_BUFFERS_PER_CALL_MAX])
                while buffers and sent >= len(buffers[0]):
                    sent -= len(buffers.pop(0))
                if buffers:
                    buffers[0] = buffers[0][sent:]
                    if time.monotonic() > deadline_s:
                        raise TimeoutError("the peer reads too slowly")
        except OSError as error:
            raise ConnectionLostError(f"sending failed: {error}") from error

    def receive(self, *, wait_s: float | None = None) -> Frame:
        """Receive one frame.

        Args:
            wait_s: seconds to wait for the frame's first byte; None: for ever (a reset or ``abort`` still ends it).

        Raises:
            ConnectionLostError: closed, reset, or beyond a deadline.
            ProtocolError: what came is not a frame.
        """
        head = memoryview(bytearray(HEADER_BYTES))
        received = self._receive_first(head, wait_s)
        deadline_s = time.monotonic() + self._frame_deadline_s
        self._fill(head[received:], deadline_s)
        header = decode_header(head, self.limits)
        rest = bytearray(header.rest_bytes)
        self._fill(memoryview(rest), deadline_s)
        table_end = table_bytes(header)
        layout = decode_layout(memoryview(rest)[:table_end], self.limits)
        buffer = None
        tensors: tuple[Tensor, ...] = ()
        if header.tensors:
            buffer = self._pool.take(layout.payload_bytes)
            self._fill(buffer.data[: layout.payload_bytes], deadline_s)
            tensors = layout.tensors(buffer)
        return Frame(header.request, bytes(rest[table_end:]), tensors, self._pool, buffer)

    def admit(self, limits: FrameLimits, frame_deadline_s: float) -> None:
        """Go on under other bounds: the peer is known now."""
        self.limits = limits
        self._frame_deadline_s = frame_deadline_s
        self._socket.settimeout(frame_deadline_s)

    def stop_receiving(self) -> None:
        """Let no further frame in; one that is being answered can still be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def abort(self) -> None:
        """End both directions at once; a thread blocked in ``send`` or ``receive`` gets ConnectionLostError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Abort and free the socket; only for the thread that receives."""
        self.abort()
        self._socket.close()

    def _receive_first(self, head: memoryview, wait_s: float | None) -> int:
        """Wait for a frame; returns how many bytes of its header have come, at least 1."""
        deadline_s = None if wait_s is None else time.monotonic() + wait_s
        while True:
            if deadline_s is not None and wait_s is not None and wait_s < self._frame_deadline_s:
                self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
            try:
                received = self._socket.recv_into(head)
            except TimeoutError as error:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    raise ConnectionLostError(f"the peer was silent for {wait_s:.1f} s") from error
                continue
            except OSError as error:
                raise ConnectionLostError(f"receiving failed: {error}") from error
            finally:
                if wait_s is not None and wait_s < self._frame_deadline_s:
                    self._socket.settimeout(self._frame_deadline_s)
            if received == 0:
                raise ConnectionLostError("the peer closed the connection")
            return received

    def _fill(self, target: memoryview, deadline_s: float) -> None:
        while target:
            try:
                received = self._socket.recv_into(target)
            except OSError as error:
                raise ConnectionLostError(f"receiving failed: {error}") from error
            if received == 0:
                raise ConnectionLostError("the peer closed the connection in the middle of a frame")
            target = target[received:]
            if target and time.monotonic() > deadline_s:
                raise ProtocolError(f"a frame took longer than {self._frame_deadline_s:.0f} s")


def _notice_dead_peers(connected: socket.socket, deadline_s: float) -> None:
    """Have the kernel give up on a peer whose machine is gone: such a peer never resets anything."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 5),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(deadline_s * 1000)),
    ):
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
