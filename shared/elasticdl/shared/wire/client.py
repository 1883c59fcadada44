"""The connecting end: requests go out in the order of the calls, replies come back in the same order."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from elasticdl.shared.addresses import host_and_port
from elasticdl.shared.errors import ElasticDLError, ProtocolError
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.connection import Connection, ConnectionLostError, Frame
from elasticdl.shared.wire.frames import FrameLimits, Tensor, encode

_TOGETHER_BYTES_MAX = 1 << 18
"""Larger requests are sent at once: the peer receives them while the next one is prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Bounds of a wire client.

    Attributes:
        connect_s: seconds to connect and to be welcomed.
        request_s: seconds that a reply may take; beyond them the peer counts as dead.
        frame_deadline_s: seconds that one frame may take on its way.
    """

    connect_s: float = 5.0
    request_s: float = 60.0
    frame_deadline_s: float = 60.0
    limits: FrameLimits = field(default_factory=FrameLimits)


class Ticket:
    """A reply that is to come."""

    __slots__ = ("_client", "error", "frame", "request")

    def __init__(self, client: WireClient, request: int) -> None:
        self.request = request
        self.frame: Frame | None = None
        self.error: ElasticDLError | None = None
        self._client = client

    @property
    def is_settled(self) -> bool:
        """Whether the reply has come, or never will."""
        return self.frame is not None or self.error is not None

    def result(self, timeout_s: float | None = None) -> Frame:
        """Wait for the reply; the caller releases it.

        Args:
            timeout_s: seconds to wait instead of the client's ``request_s``.

        Raises:
            ConnectionLostError: the peer is gone or did not answer in time (then the connection is ended).
            ProtocolError: the peer answered with something else than frames in order.
        """
        self._client.send_unsent()
        self._client.receive_until(self, timeout_s)
        if self.frame is None:
            raise self.error or ConnectionLostError("no reply")
        return self.frame


class WireClient:
    """A connection to a wire server, for any number of threads.

    A thread that waits for a reply receives it itself, and all replies before it. A request that the peer does not take
    at once, because it is busy with replies to earlier requests, is sent while another thread receives these. So a
    client that sends a large push while a large reply is on its way can't lock up with a server that does the same.
    """

    def __init__(
        self, address: str, *, token: str, peer: str, pool: BufferPool, settings: ClientSettings | None = None
    ) -> None:
        """Connect and show the token. Raises ``ConnectionLostError`` if no server listens, or refuses it."""
        self.settings = settings or ClientSettings()
        self._send_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._settled = threading.Condition(self._state_lock)
        """Notified when a request is settled, or the thread that receives stops doing so."""
        self._is_receiving = False
        self._receives_always = False
        """Whether a thread of its own receives, as long as the connection is open."""
        self._followers = 0
        """Threads that wait for it."""
        self._waiting: deque[Ticket] = deque()
        self._unsent: list[memoryview | bytes] = []
        """Encoded requests that are sent with the next one."""
        self._last: Ticket | None = None
        self._last_sent: Ticket | None = None
        """The last request that is not among the unsent ones."""
        self._lost: ElasticDLError | None = None
        self._requests = 0
        self._connection, self.identity = _connect(address, token, peer, pool, self.settings)

    @property
    def lost(self) -> bool:
        """Whether the connection is of no use any more."""
        return self._lost is not None

    def send(self, meta: bytes, tensors: Sequence[Tensor] = (), *, is_followed: bool = False) -> Ticket:
        """Send a request; tensors may change once this returns.

        A lost connection is no error here: the ticket tells, so that a caller has one place to handle it.

        Args:
            is_followed: the same thread sends another request at once, or waits for the reply. Small requests are sent
                with that one, so that the peer answers them together; their tensors may change only then. Their replies
                must be small: the peer sends them before it has all of the other request.

        Raises:
            ValueError: the frame exceeds a limit.
        """
        with self._send_lock:
            with self._state_lock:
                self._requests += 1
                ticket = Ticket(self, self._requests)
                if self._lost is not None:
                    ticket.error = self._lost
                    return ticket
                self._waiting.append(ticket)
                self._last = ticket
            try:
                self._unsent += encode(ticket.request, meta, tensors, self.settings.limits)
            except ValueError:
                self.abort("a request could not be encoded")
                raise
            if not is_followed or sum(map(len, self._unsent)) > _TOGETHER_BYTES_MAX:
                self._transmit()
        return ticket

    def send_unsent(self) -> None:
        """Send requests that wait for another one to follow."""
        if self._unsent:
            with self._send_lock:
                self._transmit()

    def request(self, meta: bytes, tensors: Sequence[Tensor] = (), *, timeout_s: float | None = None) -> Frame:
        """Send a request and wait for its reply; errors as ``Ticket.result``."""
        return self.send(meta, tensors).result(timeout_s)

    def receive_always(self) -> None:
        """Receive replies in a thread of its own from now on, so that several peers can send large ones at once."""
        with self._state_lock:
            if self._receives_always:
                return
            self._receives_always = True
        threading.Thread(target=self._receive_replies, name="wire-replies", daemon=True).start()

    def receive_until(self, ticket: Ticket, timeout_s: float | None = None) -> None:
        """Receive replies until a request has its own, or wait while another thread does so."""
        wait_s = self.settings.request_s if timeout_s is None else timeout_s
        if not self._becomes_receiver(ticket, wait_s):
            return
        end_s = time.monotonic() + wait_s
        try:
            while not ticket.is_settled and not self.lost:
                if time.monotonic() > end_s:
                    self.abort("no reply within the deadline")  # Earlier replies came, each in time.
                else:
                    self._receive(wait_s)
        finally:
            self._stop_receiving()

    def abort(self, reason: str) -> None:
        """End the connection; every reply still to come is lost."""
        self._fail(ConnectionLostError(reason))

    def close(self) -> None:
        """End the connection and free the socket."""
        self.abort("closed")
        with self._send_lock:  # No other thread may use the number of the socket any more.
            with self._settled:
                self._settled.wait_for(lambda: not self._is_receiving)
            self._connection.close()

    def _transmit(self) -> None:
        unsent, self._unsent = self._unsent, []
        if not unsent or self.lost:
            return
        earlier, self._last_sent = self._last_sent, self._last
        try:
            if earlier is None or earlier.is_settled:
                self._connection.transmit(unsent)
            else:
                receiver = threading.Thread(
                    target=self.receive_until, args=(earlier,), name="wire-replies", daemon=True
                )
                self._connection.transmit(unsent, before_blocking=receiver.start)
        except ConnectionLostError as error:
            self.abort(str(error))
        except BaseException:
            self.abort("a request was sent in part")  # The peer would take the next one for the rest of it.
            raise

    def _becomes_receiver(self, ticket: Ticket, wait_s: float) -> bool:
        """Make this thread the one that receives, once no other does so and unless the request is settled by then.

        The connection is lost if that takes ``wait_s``.
        """
        with self._state_lock:
            if self._is_receiving and not ticket.is_settled:
                self._followers += 1
                try:
                    is_settled_or_free = self._settled.wait_for(
                        lambda: ticket.is_settled or not self._is_receiving, wait_s
                    )
                finally:
                    self._followers -= 1
            else:
                is_settled_or_free = True
            if is_settled_or_free and not ticket.is_settled and self._lost is None:
                self._is_receiving = True
                return True
        if not is_settled_or_free:
            self.abort("no reply within the deadline")
        return False

    def _receive_replies(self) -> None:
        with self._state_lock:
            self._settled.wait_for(lambda: not self._is_receiving)
            self._is_receiving = True
        try:
            while not self.lost:
                self._receive(None)
        finally:
            self._stop_receiving()

    def _stop_receiving(self) -> None:
        with self._state_lock:
            self._is_receiving = False
            self._settled.notify_all()

    def _receive(self, wait_s: float | None) -> None:
        """Receive one reply; an error settles all requests."""
        try:
            frame = self._connection.receive(wait_s=wait_s)
            with self._state_lock:
                ticket = self._waiting[0] if self._waiting else None
                if ticket is not None and ticket.request == frame.request:
                    ticket.frame = frame
                    self._waiting.popleft()
                    if self._followers:
                        self._settled.notify_all()
                    return
            frame.release()
            error: ElasticDLError = ProtocolError(f"reply to request {frame.request}, which is not the next one")
        except (ConnectionLostError, ProtocolError) as lost:
            error = lost
        except Exception as unexpected:  # A request must not wait forever for what will never come.
            error = ConnectionLostError(f"a reply could not be received: {unexpected!r}")
        except BaseException:
            self.abort("a reply was received in part")  # The next thread would take its rest for another one.
            raise
        self._fail(error)

    def _fail(self, error: ElasticDLError) -> None:
        with self._state_lock:
            if self._lost is None:
                self._lost = error
            waiting, self._waiting = self._waiting, deque()
            for ticket in waiting:
                ticket.error = error
            self._settled.notify_all()
        self._connection.abort()


def _connect(address: str, token: str, peer: str, pool: BufferPool, settings: ClientSettings) -> tuple[Connection, str]:
    try:
        host, port = host_and_port(address)
        connected = socket.create_connection((host, port or 0), timeout=settings.connect_s)
        connection = Connection(
            connected, pool=pool, limits=settings.limits, frame_deadline_s=settings.frame_deadline_s
        )
    except (OSError, ValueError) as error:
        raise ConnectionLostError(f"{address} can't be reached: {error}") from error
    try:
        connection.send(0, wire_pb2.Hello(token=token, peer=peer).SerializeToString())
        frame = connection.receive(wait_s=settings.connect_s)
        return connection, wire_pb2.Welcome.FromString(frame.meta).peer
    except ConnectionLostError as error:
        connection.close()
        raise ConnectionLostError(f"{address} did not welcome us: {error}") from error
    except (ProtocolError, DecodeError) as error:
        connection.close()
        raise ProtocolError(f"{address} is no wire server: {error}") from error
