"""The way to one ps: connects, sends in order, and does not give up while the ps is being restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.client import ClientSettings, Ticket, WireClient
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.message_codec import decode_reply, encode_request
from elasticdl.shared.wire.messages import Initialise, Reply, Request
from elasticdl.worker.ps_client.rules import (
    MovedError,
    has_model_on_record,
    is_same_life,
    wants_initial_values,
    why_not_ready,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PsAddress:
    """Where a ps is.

    Attributes:
        address: ``host:port``.
        incarnation: which life of it; another one answering at that address is not talked to.
    """

    address: str
    incarnation: Incarnation


_LOOK_S = 0.02
"""Seconds between two looks whether groups have moved meanwhile."""

Resolve = Callable[[], Mapping[PodName, PsAddress]]
"""The ps that are known now; called again whenever one can't be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PsSetSettings:
    """Patience.

    Attributes:
        unavailable_s: seconds that a ps may be away (killed, restarting, restoring) before a request fails.
        pause_s: seconds between two tries, at first.
        pause_max_s: seconds between two tries, at most; the pause doubles.
        wire: bounds of each connection.
    """

    unavailable_s: float = 600.0
    pause_s: float = 0.02
    pause_max_s: float = 0.5
    wire: ClientSettings = field(default_factory=ClientSettings)


@dataclass(slots=True)
class Pending:
    """A request under way; kept whole, so that it can be sent again."""

    request: Request
    ticket: Ticket | None
    """None: it could not be sent so far."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply, the incarnation that gave it, and what gives its buffer back."""

    reply: Reply
    incarnation: Incarnation
    release: Callable[[], None]


class Link:
    """One ps of the set. Thread-safe; requests go out in the order of the ``send`` calls."""

    def __init__(
        self, ps: PodName, *, resolve: Resolve, token: str, peer: str, pool: BufferPool, settings: PsSetSettings
    ) -> None:
        self.ps = ps
        self._resolve = resolve
        self._token = token
        self._peer = peer
        self._pool = pool
        self._settings = settings
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._client: WireClient | None = None
        self._initial: Initialise | None = None
        """What to offer a ps that died before its first snapshot; forgotten once it has one."""
        self._log = structlog.get_logger().bind(ps=ps)

    def send(self, request: Request) -> Pending:
        """Send a request, connecting first if need be; a ps that is away shows only in ``settle``."""
        meta, tensors = encode_request(request)
        with self._lock:
            client = self._connected()
            return Pending(request, client.send(meta, tensors) if client else None)

    def initialise(self, request: Initialise) -> Pending:
        """Send initial values, and keep them until the ps has them on record."""
        self._initial = request
        return self.send(request)

    @property
    def keeps_initial(self) -> bool:
        """Whether the ps may need its initial values again."""
        return self._initial is not None

    def renew(self, request: Initialise) -> None:
        """Keep these initial values, split by a later placement, in place of those that are kept."""
        if self._initial is not None:
            self._initial = request

    def settle(self, pending: Pending, is_current: Callable[[], bool]) -> Answer:
        """Wait for the answer, sending again as often as it takes.

        Args:
            pending: what was sent.
            is_current: whether the placement by which the request was split is still the latest.

        Raises:
            MovedError: it is not.
            UserError: the ps says that the user's input is wrong.
            PinLostError: the pin that was asked for is not open.
            ProtocolError: the ps says that the request is wrong, or its reply is.
            TransientError: it stayed away for ``unavailable_s``, or the set was closed.
        """
        give_up_s = time.monotonic() + self._settings.unavailable_s
        pause_s = self._settings.pause_s
        while True:
            try:
                answer = self._receive(pending)
                waiting = why_not_ready(answer.reply)
                if waiting is None:
                    if has_model_on_record(answer.reply):
                        self._initial = None
                    return answer
                reason = waiting.message
                answer.release()
                if wants_initial_values(waiting) and self._initial is not None:
                    self.send(self._initial)
            except ConnectionLostError as error:
                reason = str(error)
            if time.monotonic() > give_up_s:
                raise TransientError(f"{self.ps} was away for {self._settings.unavailable_s:.0f} s: {reason}")
            self._log.debug("trying again", reason=reason, pause_s=pause_s)
            self._pause(pause_s, is_current)
            if not is_current():
                raise MovedError(f"{self.ps} does not answer, and groups have moved")
            pause_s = min(2 * pause_s, self._settings.pause_max_s)
            pending.ticket = self.send(pending.request).ticket

    def _pause(self, pause_s: float, is_current: Callable[[], bool]) -> None:
        """Wait before the next try; not longer than until another version of the placement is known."""
        end_s = time.monotonic() + pause_s
        while (left_s := end_s - time.monotonic()) > 0 and is_current():
            if self._closing.wait(min(left_s, _LOOK_S)):
                raise TransientError(f"{self.ps}: the connection was closed while waiting for an answer")

    def close(self) -> None:
        """Hang up; waiting ``settle`` calls fail."""
        self._closing.set()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _receive(self, pending: Pending) -> Answer:
        if pending.ticket is None:
            raise ConnectionLostError("it can't be reached")
        frame = pending.ticket.result()
        reply, incarnation = decode_reply(frame.meta, frame.tensors)
        return Answer(reply, Incarnation(incarnation), frame.release)

    def _connected(self) -> WireClient | None:
        """The present connection or a new one; None while the ps can't be reached."""
        if self._client is not None and not self._client.lost:
            return self._client
        if self._client is not None:
            self._client.close()
            self._client = None
        place = self._resolve().get(self.ps)
        if place is None or self._closing.is_set():
            return None
        try:
            client = WireClient(
                place.address, token=self._token, peer=self._peer, pool=self._pool, settings=self._settings.wire
            )
        except (ConnectionLostError, ProtocolError) as error:
            self._log.debug("not reached", address=place.address, reason=str(error))
            return None
        if not is_same_life(client.identity, place.incarnation):
            self._log.debug("another incarnation answers", expected=place.incarnation, found=client.identity)
            client.close()
            return None
        self._client = client
        return client
