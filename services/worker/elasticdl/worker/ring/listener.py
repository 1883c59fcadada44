"""The socket that other members connect to: the token first, then the generation and the purpose."""

from __future__ import annotations

import contextlib
import hmac
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from elasticdl.shared.addresses import authority
from elasticdl.shared.errors import ProtocolError, UserError
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.connection import Connection, ConnectionLostError
from elasticdl.shared.wire.frames import HANDSHAKE_LIMITS, FrameLimits

HANDSHAKE_S = 60.0
"""Seconds that a member may take to show the token. A connection that takes longer is refused."""
FRAME_DEADLINE_S = 60.0
"""Seconds without progress after which a connection counts as lost, if nothing tells before."""
LIMITS = FrameLimits()
_ACCEPT_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSettings:
    """What a member knows about itself.

    Attributes:
        token: the secret of the job.
        host: what it listens on.
        advertised_host: what others connect to; empty: ``host``.
        port: 0: any free one.
        is_deterministic: sums are float64, so that they don't depend on the members.
        precision: in which sums travel: ``bfloat16`` or ``float16``, which are not deterministic; else float32.
        check_steps: rounds between two comparisons of the members' weights; 0: they are not compared.
    """

    worker: PodName
    incarnation: Incarnation
    token: str
    host: str = "127.0.0.1"
    advertised_host: str = ""
    port: int = 0
    is_deterministic: bool = False
    precision: str | None = None
    check_steps: int = 0


class Listener:
    """Accepts connections, each on a thread of its own.

    Args:
        serve: called with what the other member said and the connection; returns when the connection is of no use to
            this thread any more. Takes over the connection.
    """

    def __init__(self, settings: RingSettings, serve: Callable[[wire_pb2.RingHello, Connection], None]) -> None:
        if not settings.token:
            raise UserError(
                "no token is set, so anyone could read and change the model",
                hint="Set ELASTICDL_TOKEN to the same secret in all processes of the job.",
            )
        self._settings = settings
        self._serve = serve
        self._is_closed = threading.Event()
        self._pool = BufferPool()
        self._lines = RepeatedLines(get_logger().bind(part="ring"))
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._socket = socket.create_server((settings.host, settings.port), family=family, backlog=128)

    @property
    def address(self) -> str:
        """``host:port`` that others connect to."""
        host, port = self._socket.getsockname()[:2]
        return authority(self._settings.advertised_host or host, port)

    def start(self) -> None:
        """Begin to accept connections."""
        threading.Thread(target=self._accept, name="ring-accept", daemon=True).start()

    def close(self) -> None:
        """Accept no further connection."""
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, peer = self._socket.accept()
            except OSError as error:
                if self._is_closed.is_set():
                    return
                self._lines.warning("accept failed", reason=str(error))
                self._is_closed.wait(_ACCEPT_PAUSE_S)
                continue
            threading.Thread(
                target=self._admit, args=(accepted, authority(*peer[:2])), name="ring-peer", daemon=True
            ).start()

    def _admit(self, accepted: socket.socket, peer: str) -> None:
        try:
            connection = Connection(accepted, pool=self._pool, limits=HANDSHAKE_LIMITS, frame_deadline_s=HANDSHAKE_S)
        except OSError:  # It was reset before options could be set.
            accepted.close()
            return
        try:
            hello = self._shake_hands(connection)
            connection.admit(LIMITS, FRAME_DEADLINE_S)
        except (ConnectionLostError, ProtocolError) as error:
            self._lines.warning("connection refused", peer=peer, reason=str(error))
            connection.close()
            return
        self._serve(hello, connection)

    def _shake_hands(self, connection: Connection) -> wire_pb2.RingHello:
        frame = connection.receive(wait_s=HANDSHAKE_S)
        try:
            hello = wire_pb2.Hello.FromString(frame.meta)
            if not hmac.compare_digest(hello.token.encode(), self._settings.token.encode()):
                raise ProtocolError(f"wrong token from {hello.peer[:80]!r}")
            wanted = wire_pb2.RingHello.FromString(connection.receive(wait_s=HANDSHAKE_S).meta)
        except DecodeError as error:
            raise ProtocolError("the first frames are no Hello") from error
        if wanted.incarnation != self._settings.incarnation:
            raise ProtocolError(f"{hello.peer[:80]!r} looks for another member than this one")
        connection.send(0, wire_pb2.Welcome(peer=self._settings.incarnation).SerializeToString())
        return wanted
