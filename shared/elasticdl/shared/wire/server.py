"""The listening end: one thread per connection, the token first."""

from __future__ import annotations

import contextlib
import hmac
import itertools
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from elasticdl.shared.addresses import authority
from elasticdl.shared.errors import ProtocolError, UserError
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.connection import Connection, ConnectionLostError, Frame
from elasticdl.shared.wire.frames import HANDSHAKE_LIMITS, FrameLimits, Tensor, encode

GRACE_S = 5.0
"""Seconds for requests in progress when the server is closed; then their connections are cut."""
REPLIES_TOGETHER_MAX = 2
"""Replies of one connection that are sent together at most: the answers to a push and to the pull behind it."""
_ACCEPT_PAUSE_S = 0.1
"""Rest after a connection could not be accepted: without a free descriptor the next try fails at once, too."""


def _nothing() -> None:
    """Do nothing: the reply has no buffers that are used again once it is sent."""


def _ignore(sender: int) -> None:
    """The end of a connection does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a handler answers.

    Attributes:
        meta: protobuf bytes.
        tensors: flat arrays; unchanged until ``sent`` is called.
        sent: called once the reply is on its way or can't be sent any more.
    """

    meta: bytes
    tensors: Sequence[Tensor] = ()
    sent: Callable[[], None] = _nothing


Handler = Callable[[Frame], Response]
"""Answers one request. Called by many threads at once. It may raise ``ProtocolError``, which closes that connection;
any other error is taken for a bug. The frame is released after the reply is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Bounds of a wire server.

    Attributes:
        port: port to listen on; 0: any free one.
        connections_max: open connections; more are closed at once.
        handshake_s: seconds that a peer may take to show the token.
        frame_deadline_s: seconds that one frame may take to arrive or to be taken by the peer.
    """

    host: str = "127.0.0.1"
    port: int = 0
    connections_max: int = 1024
    handshake_s: float = 5.0
    frame_deadline_s: float = 60.0
    limits: FrameLimits = field(default_factory=FrameLimits)


class WireServer:
    """Serves requests, each connection in order, connections independently of each other.

    Args:
        token: the job's secret, not empty; a peer that does not show it first is closed.
        on_fatal: called once with an error that no peer caused; the process is expected to die of it.
        on_closed: called with the number of a connection (``Frame.sender``) that has ended.
    """

    def __init__(
        self,
        handle: Handler,
        *,
        token: str,
        identity: str,
        on_fatal: Callable[[BaseException], None],
        settings: ServerSettings | None = None,
        on_closed: Callable[[int], None] = _ignore,
    ) -> None:
        if not token:
            raise UserError(
                "no token is set, so anyone could read and change the model",
                hint="Set ELASTICDL_TOKEN to the same secret in all processes of the job.",
            )
        self._handle = handle
        self._token = token.encode()
        self._identity = identity
        self._on_fatal = on_fatal
        self._on_closed = on_closed
        self._numbers = itertools.count(1)
        self._settings = settings or ServerSettings()
        self._pool = BufferPool()
        self._lock = threading.Lock()
        self._connections: dict[Connection, threading.Thread] = {}
        self._closing = threading.Event()
        self._log = get_logger().bind(part="wire")
        self._lines = RepeatedLines(self._log)
        place = (self._settings.host, self._settings.port)
        family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._listener = socket.create_server(place, family=family, backlog=128)
        self._acceptor = threading.Thread(target=self._accept, name="wire-accept", daemon=True)

    @property
    def address(self) -> str:
        """``host:port`` that it listens on."""
        return authority(*self._listener.getsockname()[:2])

    def start(self) -> None:
        """Begin to accept connections."""
        self._acceptor.start()

    def close(self) -> None:
        """Stop: no new connection; requests in progress have ``GRACE_S`` to be finished and answered."""
        deadline_s = time.monotonic() + GRACE_S
        with self._lock:
            self._closing.set()
            open_now = dict(self._connections)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in open_now:
            connection.stop_receiving()
        for thread in open_now.values():
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))
        for connection in open_now:
            connection.abort()

    def _accept(self) -> None:
        while True:
            try:
                accepted, peer = self._listener.accept()
            except OSError as error:
                if self._closing.is_set():
                    return
                self._lines.warning("accept failed", reason=str(error))
                self._closing.wait(_ACCEPT_PAUSE_S)
                continue
            self._admit(accepted, authority(*peer[:2]))

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        deadline_s = self._settings.handshake_s
        try:
            connection = Connection(accepted, pool=self._pool, limits=HANDSHAKE_LIMITS, frame_deadline_s=deadline_s)
        except OSError:  # it was reset before we could set options
            accepted.close()
            return
        if problem := self._begin(connection, peer):
            self._lines.warning("connection refused", peer=peer, reason=problem)
            connection.close()

    def _begin(self, connection: Connection, peer: str) -> str:
        """Serve a connection on a thread of its own; returns why it can't be served, or nothing."""
        connections_max = self._settings.connections_max
        thread = threading.Thread(target=self._serve, args=(connection, peer), name=f"wire-{peer}", daemon=True)
        with self._lock:
            if self._closing.is_set():
                return "the server ends"
            if len(self._connections) >= connections_max:
                return f"{connections_max} connections are open"
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:  # The process has all threads that it may have.
                return str(error) or "no memory for a thread"
            self._connections[connection] = thread  # ``close`` joins what it finds here.
        return ""

    def _serve(self, connection: Connection, peer: str) -> None:
        number = next(self._numbers)
        replies = _Replies(connection)
        try:
            self._shake_hands(connection)
            connection.admit(self._settings.limits, self._settings.frame_deadline_s)
            while not self._closing.is_set():
                frame = connection.receive(before_waiting=replies.send)
                frame.sender, frame.before_waiting = number, replies.send
                self._answer(replies, frame)
        except ConnectionLostError as lost:
            self._log.debug("connection ended", peer=peer, reason=str(lost))
        except ProtocolError as error:
            self._lines.warning("connection closed", peer=peer, reason=str(error))
        except MemoryError:
            self._lines.warning("connection closed: no memory for a frame", peer=peer)
        except BaseException as error:  # the thread's outermost frame: a bug must end the process
            self._log.error("request failed", peer=peer, reason=str(error), exc_info=True)
            self._on_fatal(error)
        finally:
            # The connection ends here, whatever becomes of the reply that waits.
            with contextlib.suppress(ConnectionLostError, ValueError, MemoryError):
                replies.send()
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()
            self._on_closed(number)

    def _shake_hands(self, connection: Connection) -> None:
        frame = connection.receive(wait_s=self._settings.handshake_s)
        try:
            hello = wire_pb2.Hello.FromString(frame.meta)
        except DecodeError as error:
            raise ProtocolError("the first frame is no Hello") from error
        if not hmac.compare_digest(hello.token.encode(), self._token):
            raise ProtocolError(f"wrong token from {hello.peer[:80]!r}")
        connection.send(frame.request, wire_pb2.Welcome(peer=self._identity).SerializeToString())

    def _answer(self, replies: _Replies, frame: Frame) -> None:
        try:
            response = self._handle(frame)
        except BaseException:
            frame.release()
            raise
        replies.add(frame, response)


class _Replies:
    """Replies of one connection that are sent together: those to requests that came together.

    A peer that sends two requests at once waits for both answers, so that it need not be woken for each of them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[tuple[Frame, Response]] = []

    def add(self, frame: Frame, response: Response) -> None:
        """Send a reply with the one before it, or before the connection's thread waits."""
        self._waiting.append((frame, response))
        if len(self._waiting) >= REPLIES_TOGETHER_MAX:
            self.send()

    def send(self) -> None:
        """Send what waits; errors as ``Connection.send``."""
        waiting, self._waiting = self._waiting, []
        try:
            encoded: list[memoryview | bytes] = []
            for frame, response in waiting:
                encoded += encode(frame.request, response.meta, response.tensors, self._connection.limits)
            if encoded:
                self._connection.transmit(encoded)
        finally:
            for frame, response in waiting:
                response.sent()
                frame.release()
