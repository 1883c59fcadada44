"""One blocking socket that carries frames."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.wire.buffers import BufferPool, Bytes
from elasticdl.shared.wire.frames import (
    HEADER_BYTES,
    FrameLimits,
    Tensor,
    decode_header,
    decode_table,
    encode,
    views,
)

_BUFFERS_PER_CALL_MAX = 512
"""``sendmsg`` takes IOV_MAX (1024 on Linux) buffers at most."""
_AHEAD_BYTES = 1 << 14
"""Bytes to receive ahead. A small frame, or two, then need one system call. The part of a large payload that arrives
this way is copied once more."""
_TIMEVAL = struct.Struct("@ll")


def _nothing() -> None:
    """Do nothing: no reply waits to be sent, as in a client."""


class ConnectionLostError(TransientError):
    """The peer is gone: reset, closed, or silent beyond the deadline."""


class Frame:
    """A received frame. Its tensors are views of a pooled buffer: call ``release`` after the last use of them.

    Attributes:
        meta: protobuf bytes.
        tensors: flat arrays in the order sent.
        sender: number of the connection that a server got it by.
        before_waiting: a server's handler calls it before it waits for anything: answers to earlier requests of the
            connection are sent then.
    """

    __slots__ = ("_buffer", "_pool", "before_waiting", "meta", "request", "sender", "tensors")

    def __init__(
        self, request: int, meta: bytes, tensors: tuple[Tensor, ...], pool: BufferPool, buffer: Bytes | None
    ) -> None:
        self.request = request
        self.meta = meta
        self.tensors = tensors
        self.sender = 0
        self.before_waiting: Callable[[], None] = _nothing
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
        self._ahead = memoryview(bytearray(_AHEAD_BYTES))
        self._start = self._end = 0
        """Where in ``_ahead`` the bytes lie that were received and not taken yet."""
        _notice_dead_peers(connected, frame_deadline_s)
        # Python's own timeout would ask the kernel before each call whether the socket is ready.
        connected.settimeout(None)
        self._set_timeouts(frame_deadline_s)

    def send(self, request: int, meta: bytes, tensors: Sequence[Tensor] = ()) -> None:
        """Send one frame; returns when the kernel has taken it all, after which the tensors may change.

        Raises:
            ConnectionLostError: reset, or not taken within the deadline; the connection is of no use any more.
            ValueError: the frame exceeds a limit.
        """
        self.transmit(encode(request, meta, tensors, self.limits))

    def transmit(
        self, encoded: Sequence[memoryview | bytes], *, before_blocking: Callable[[], None] | None = None
    ) -> None:
        """Send encoded frames, if possible with one system call; errors as ``send``.

        Args:
            before_blocking: called if the peer does not take all of it at once.
        """
        try:
            deadline_s = time.monotonic() + self._frame_deadline_s
            if before_blocking is None:
                sent = self._socket.sendmsg(encoded[:_BUFFERS_PER_CALL_MAX])
            else:
                sent = self._transmit_some(encoded[:_BUFFERS_PER_CALL_MAX])
            if sent < sum(map(len, encoded)):
                if before_blocking is not None:
                    before_blocking()
                self._transmit_rest([memoryview(part) for part in encoded], sent, deadline_s)
        except BlockingIOError as error:
            raise ConnectionLostError("sending failed: the peer reads too slowly") from error
        except OSError as error:
            raise ConnectionLostError(f"sending failed: {error}") from error

    def _transmit_some(self, encoded: Sequence[memoryview | bytes]) -> int:
        """Send what the peer takes at once; returns how many bytes."""
        try:
            return self._socket.sendmsg(encoded, (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _transmit_rest(self, buffers: list[memoryview], sent: int, deadline_s: float) -> None:
        """Send what a first call has left."""
        while True:
            while buffers and sent >= len(buffers[0]):
                sent -= len(buffers.pop(0))
            if not buffers:
                return
            if time.monotonic() > deadline_s:
                raise TimeoutError("the peer reads too slowly")
            buffers[0] = buffers[0][sent:]
            sent = self._socket.sendmsg(buffers[:_BUFFERS_PER_CALL_MAX])

    def receive(self, *, wait_s: float | None = None, before_waiting: Callable[[], None] = _nothing) -> Frame:
        """Receive one frame.

        Args:
            wait_s: seconds to wait for the frame's first byte; None: forever (a reset or ``abort`` still ends it).
            before_waiting: called once unless the whole header has come already: then the peer may wait, too.

        Raises:
            ConnectionLostError: closed, reset, or beyond a deadline.
            ProtocolError: what came is not a frame.
        """
        if self._end - self._start < HEADER_BYTES:
            before_waiting()
        if self._start == self._end:
            self._receive_first(wait_s)
        deadline_s = time.monotonic() + self._frame_deadline_s
        header = decode_header(self._take(HEADER_BYTES, deadline_s), self.limits)
        table_bytes = header.table_bytes
        rest = self._take(table_bytes + header.meta_bytes, deadline_s)
        meta = bytes(rest[table_bytes:])
        if not table_bytes:
            return Frame(header.request, meta, (), self._pool, None)
        places, payload_bytes = decode_table(rest[:table_bytes], self.limits)
        buffer = self._pool.take(payload_bytes)
        self._fill(buffer.data[:payload_bytes], deadline_s)
        return Frame(header.request, meta, views(places, buffer), self._pool, buffer)

    def admit(self, limits: FrameLimits, frame_deadline_s: float) -> None:
        """Use other limits from now on: the peer has passed the handshake."""
        self.limits = limits
        self._frame_deadline_s = frame_deadline_s
        self._set_timeouts(frame_deadline_s)

    def stop_receiving(self) -> None:
        """Let no further frame in; one that is being answered can still be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def detach(self) -> socket.socket:
        """The socket, for a stream without frames; the connection must not be used afterwards.

        Raises:
            ProtocolError: the peer has sent more than the frames that were received.
        """
        if self._start != self._end:
            raise ProtocolError("bytes came behind the last frame")
        return self._socket

    def abort(self) -> None:
        """End both directions at once; a thread blocked in ``send`` or ``receive`` gets ConnectionLostError."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Abort and free the socket; no other thread may send or receive any more."""
        self.abort()
        self._socket.close()

    def _receive_first(self, wait_s: float | None) -> None:
        """Wait for a frame: at least the first byte of its header."""
        deadline_s = None if wait_s is None else time.monotonic() + wait_s
        while True:
            if deadline_s is not None and wait_s is not None and wait_s < self._frame_deadline_s:
                self._set_timeout(socket.SO_RCVTIMEO, max(0.001, deadline_s - time.monotonic()))
            try:
                received = self._socket.recv_into(self._ahead)
            except BlockingIOError as error:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    raise ConnectionLostError(f"the peer was silent for {wait_s:.1f} s") from error
                continue
            except OSError as error:
                raise ConnectionLostError(f"receiving failed: {error}") from error
            finally:
                if wait_s is not None and wait_s < self._frame_deadline_s:
                    self._set_timeout(socket.SO_RCVTIMEO, self._frame_deadline_s)
            if received == 0:
                raise ConnectionLostError("the peer closed the connection")
            self._start, self._end = 0, received
            return

    def _take(self, size: int, deadline_s: float) -> memoryview:
        """The next bytes of a frame; unchanged until bytes are received again."""
        if size > _AHEAD_BYTES:
            target = memoryview(bytearray(size))
            self._fill(target, deadline_s)
            return target
        if self._start + size > _AHEAD_BYTES:
            self._ahead[: self._end - self._start] = self._ahead[self._start : self._end]
            self._start, self._end = 0, self._end - self._start
        while self._end - self._start < size:
            self._end += self._receive_some([self._ahead[self._end :]], deadline_s)
        self._start += size
        return self._ahead[self._start - size : self._start]

    def _fill(self, target: memoryview, deadline_s: float) -> None:
        """Copy the next bytes of a frame that have come already, and receive the others in place."""
        copied = min(len(target), self._end - self._start)
        target[:copied] = self._ahead[self._start : self._start + copied]
        self._start += copied
        target = target[copied:]
        while target:
            received = self._receive_some([target, self._ahead], deadline_s)
            self._start, self._end = 0, max(0, received - len(target))
            target = target[received:]

    def _receive_some(self, targets: Sequence[memoryview], deadline_s: float) -> int:
        """Receive bytes of a frame that has begun; returns how many, at least 1."""
        if time.monotonic() > deadline_s:
            raise ProtocolError(f"a frame took longer than {self._frame_deadline_s:.0f} s")
        try:
            received = self._socket.recvmsg_into(targets)[0]
        except BlockingIOError as error:
            raise ConnectionLostError("receiving failed: the peer stopped in the middle of a frame") from error
        except OSError as error:
            raise ConnectionLostError(f"receiving failed: {error}") from error
        if received == 0:
            raise ConnectionLostError("the peer closed the connection in the middle of a frame")
        return received

    def _set_timeouts(self, seconds: float) -> None:
        self._set_timeout(socket.SO_RCVTIMEO, seconds)
        self._set_timeout(socket.SO_SNDTIMEO, seconds)

    def _set_timeout(self, option: int, seconds: float) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(*divmod(round(1e6 * seconds), 1_000_000)))


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
