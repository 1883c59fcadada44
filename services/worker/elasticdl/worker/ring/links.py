"""The connections of one member in one generation.

Followers and joiners connect to the leader (messages), and each member to the next one in the order of the ring (sums).
Connections belong to one generation: nothing that a member of a former one sends can arrive in a later one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from itertools import count

from elasticdl.shared.addresses import host_and_port
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.connection import Connection, ConnectionLostError
from elasticdl.worker.ring.collective import Ring, RingBrokenError
from elasticdl.worker.ring.core import events
from elasticdl.worker.ring.core.generations import ring_order
from elasticdl.worker.ring.core.messages import Message, State
from elasticdl.worker.ring.listener import FRAME_DEADLINE_S, LIMITS, RingSettings
from elasticdl.worker.ring.message_codec import Decoder, encode, state_frames
from elasticdl.worker.ring.ports import LEADER, Generation

AGAIN_S = 0.1
"""Seconds before a joiner connects to the same leader again."""
CONNECT_S = 10.0
"""Seconds to reach a machine that does not answer at all; then the member asks for another generation."""


class Links:
    """The connections of one generation. Any thread may call.

    Args:
        rank: None: this process is no member, and only talks to the leader.
        post: takes the events of the connections.
    """

    def __init__(
        self,
        settings: RingSettings,
        generation: Generation,
        rank: int | None,
        post: Callable[[events.RingEvent], None],
    ) -> None:
        self.generation = generation
        self._settings, self._post = settings, post
        self._rank = -1 if rank is None else rank
        self._size = len(generation.members)
        self._order = ring_order(generation)
        self._joiners = count(self._size)
        """Ranks of processes that are no members."""
        self._pool = BufferPool()
        self._changed = threading.Condition()
        self._is_closed = False
        self._connections: list[Connection] = []
        """All that are open, to be ended together."""
        self._peers: dict[int, Connection] = {}
        """By rank, those that carry messages."""
        self._sending: dict[int, threading.Lock] = {}
        """By rank: held while a message is sent, and while the socket is freed."""
        self._sockets: dict[str, socket.socket] = {}
        """The two that carry sums: ``following`` and ``preceding``."""
        self._ring: Ring | None = None

    def start(self, *, is_again: bool = False) -> None:
        """Connect, in threads; ``is_again``: after a moment."""
        if self._rank != LEADER:
            pause_s = AGAIN_S if is_again else 0.0
            threading.Thread(target=self._talk_to_leader, args=(pause_s,), name="ring-leader", daemon=True).start()
        if self._size > 1 and self._is_member:
            threading.Thread(target=self._reach_following, name="ring-next", daemon=True).start()

    def serve(self, hello: wire_pb2.RingHello, connection: Connection) -> None:
        """Take over a connection that another member has made; returns when this thread is not needed any more."""
        if hello.is_data and self._is_member and hello.rank == self._neighbour(-1):
            self._add_socket("preceding", connection)
        elif hello.is_joiner and self._rank == LEADER:
            with self._changed:
                rank = next(self._joiners)
            self._listen(rank, connection)
        elif not hello.is_data and self._rank == LEADER and 0 < hello.rank < self._size:
            self._listen(hello.rank, connection)
        else:
            connection.close()

    def send(self, rank: int, message: Message) -> None:
        """Send a message. A lost connection is no error here: the thread that receives from it reports it."""
        with self._changed:
            connection, sending = self._peers.get(rank), self._sending.get(rank)
        if connection is None or sending is None:
            return
        try:
            with sending:
                if isinstance(message, State):
                    for meta, tensors in state_frames(message):
                        connection.send(0, meta, tensors)
                else:
                    connection.send(0, *encode(message))
        except ConnectionLostError:
            connection.abort()

    def ring(self) -> Ring:
        """The ring, once both neighbours are connected. Raises ``RingBrokenError`` if the generation has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._sockets) == 2)
            if self._is_closed:
                raise RingBrokenError("the generation has ended")
            if self._ring is None:
                self._ring = Ring(self._order.index(self._rank), self._size, **self._sockets)
            return self._ring

    def close(self) -> None:
        """End all connections at once; threads that use them get errors."""
        with self._changed:
            self._is_closed = True
            connections, ring = list(self._connections), self._ring
            self._changed.notify_all()
        if ring is not None:
            ring.abort()
        for connection in connections:
            connection.abort()

    def free(self) -> None:
        """Free the sockets of the ring after ``close``; no thread may reduce any more."""
        with self._changed:
            sockets, self._sockets = list(self._sockets.values()), {}
        for connected in sockets:
            connected.close()

    @property
    def _is_member(self) -> bool:
        return self._rank >= 0

    def _neighbour(self, distance: int) -> int:
        """The rank of a member before or behind this one in the order of the ring."""
        return self._order[(self._order.index(self._rank) + distance) % self._size]

    def _talk_to_leader(self, pause_s: float) -> None:
        with self._changed:
            if self._changed.wait_for(lambda: self._is_closed, pause_s):
                return
        connection = self._dial(LEADER, is_data=False)
        if connection is not None:
            self._listen(LEADER, connection)

    def _reach_following(self) -> None:
        connection = self._dial(self._neighbour(1), is_data=True)
        if connection is not None:
            self._add_socket("following", connection)

    def _dial(self, rank: int, *, is_data: bool) -> Connection | None:
        """Connect to a member; None, and an event, if that fails."""
        member, connected, connection = self.generation.members[rank], None, None
        try:
            host, port = host_and_port(member.address)
            connected = socket.create_connection((host, port or 0), timeout=CONNECT_S)
            connection = Connection(connected, pool=self._pool, limits=LIMITS, frame_deadline_s=FRAME_DEADLINE_S)
            if not self._hold(connection):
                return None
            hello = wire_pb2.Hello(token=self._settings.token, peer=self._settings.worker)
            connection.send(0, hello.SerializeToString())
            wanted = wire_pb2.RingHello(
                generation=self.generation.number,
                rank=max(self._rank, 0),
                is_data=is_data,
                is_joiner=not self._is_member,
                incarnation=member.incarnation,
            )
            connection.send(0, wanted.SerializeToString())
            connection.receive()
        except (OSError, ConnectionLostError, ProtocolError) as error:
            if connection is not None:
                connection.close()
            elif connected is not None:  # It was reset before options could be set.
                connected.close()
            self._lost(rank, str(error))
            return None
        return connection

    def _hold(self, connection: Connection) -> bool:
        """Note an open connection, so that ``close`` ends it; False: the generation has ended already."""
        with self._changed:
            if not self._is_closed:
                self._connections.append(connection)
                return True
        connection.close()
        return False

    def _listen(self, rank: int, connection: Connection) -> None:
        """Receive messages of a member until the connection ends."""
        if not self._hold(connection):
            return
        number = self.generation.number
        sending = threading.Lock()
        with self._changed:
            self._peers[rank], self._sending[rank] = connection, sending
        if rank == LEADER:
            self._post(events.LeaderReached(generation=number))
        decoder = Decoder()
        try:
            while True:
                frame = connection.receive()
                message = decoder.decode(frame.meta, frame.tensors)
                frame.release()
                if message is not None:
                    self._post(events.MessageReceived(generation=number, rank=rank, message=message))
        except (ConnectionLostError, ProtocolError) as error:
            self._lost(rank, str(error))
        except BaseException as error:  # Without this report the generation would wait for its end for ever.
            self._lost(rank, repr(error))
            raise
        finally:
            with self._changed:
                self._peers.pop(rank, None)
                self._sending.pop(rank, None)
            connection.abort()
            with sending:
                connection.close()

    def _add_socket(self, name: str, connection: Connection) -> None:
        if not self._hold(connection):
            return
        try:
            connected = connection.detach()
        except ProtocolError as error:
            self._lost(self._rank, str(error))
            return
        with self._changed:
            if not self._is_closed:
                self._sockets[name] = connected
                self._changed.notify_all()
                return
        connection.close()

    def _lost(self, rank: int, reason: str) -> None:
        if rank >= self._size:
            self._post(events.JoinerLost(generation=self.generation.number, rank=rank))
            return
        worker = self.generation.members[rank].worker
        self._post(events.PeerLost(generation=self.generation.number, reason=f"{worker}: {reason}"))
