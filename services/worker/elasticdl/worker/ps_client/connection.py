"""The connection to one ps: connects, sends in order, and repeats a request while the ps restarts.

Pure procedures. They yield steps, which a driver executes: ``client.py`` with blocking sockets, the simulator on a
virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from elasticdl.shared.errors import ProtocolError, TransientError, UserError
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.procedures import Procedure
from elasticdl.shared.process.retries import Backoff
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.client import ClientSettings
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.messages import Initialise, PullReply, PushReply, Refusal, RefusalKind, Reply, Request
from elasticdl.worker.ps_client.requests import PinLostError, PullDelayedError

_REPLIES = {
    Initialise: messages.InitialiseReply,
    messages.NextBatch: messages.NextBatchReply,
    messages.Pull: PullReply,
    messages.Push: PushReply,
    messages.Exchange: messages.ExchangeReply,
    messages.ReadMetrics: messages.MetricsReply,
}
"""What a ps answers to each request, unless it refuses."""
PLACEMENT_POLL_S = 0.005
"""Seconds between two looks for the later placement that a ps mentioned."""


class MovedError(TransientError):
    """Groups have moved: the request has to be split again by a later version of the placement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PsAddress:
    """Where a ps listens.

    Attributes:
        incarnation: the process that registered the address. The client refuses any other process there.
    """

    address: str
    incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class PsDirectory:
    """What the job's registers say about the ps. Both functions return at once.

    Attributes:
        placement: returns the latest known version of the placement.
        resolve: returns the address of every ps that has registered.
    """

    placement: Callable[[], Placement]
    resolve: Callable[[], Mapping[PodName, PsAddress]]


class Wire(Protocol):
    """An open connection to one ps. The ps answers requests in the order in which they were sent."""

    @property
    def identity(self) -> str:
        """Incarnation of the process that answered the handshake."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the connection is broken."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one ps; ``release``: returns the receive buffer to the pool."""

    reply: Reply
    incarnation: Incarnation
    release: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection; the result is a ``Wire``. Raises ConnectionLostError or ProtocolError."""

    ps: PodName
    address: PsAddress


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection."""

    wire: Wire


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; the result is a handle for ``Receive``. A broken connection shows in ``Receive``.

    Attributes:
        request: the message; unchanged until ``Receive``.
        is_followed: another request follows at once, and may be sent together with this one.
    """

    wire: Wire
    request: Request
    is_followed: bool = False


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the answer to a request; the result is an ``Answer``. Raises ConnectionLostError or ProtocolError."""

    handle: Any


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, at most until a version of the placement later than ``version`` is known.

    Raises TransientError when the client is closed meanwhile.
    """

    seconds: float
    version: int


Step = Connect | Close | Send | Receive | Pause

_BACKOFF = Backoff(first_s=0.02, max_s=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class PsClientSettings:
    """How to talk to the ps.

    Attributes:
        unavailable_s: seconds that a ps may be unavailable (killed, restarting, restoring) before a request fails.
        backoff: the pauses before retries.
        has_gate: whether one ps bounds the staleness: it is the first one that a batch is pulled from, and the last one
            that it is pushed to.
    """

    unavailable_s: float = 600.0
    backoff: Backoff = _BACKOFF
    has_gate: bool = False
    wire: ClientSettings = field(default_factory=ClientSettings)


@dataclass(slots=True)
class PendingRequest:
    """A request that waits for its answer; kept whole, so that it can be sent again.

    Attributes:
        handle: identifies the answer; None when the request could not be sent.
    """

    request: Request
    handle: Any | None
    repeated: bool = False


class PsConnection:
    """One ps."""

    def __init__(self, ps: PodName, *, directory: PsDirectory, clock: Clock, settings: PsClientSettings) -> None:
        self.ps = ps
        self._directory = directory
        self._clock = clock
        self._settings = settings
        self._wire: Wire | None = None
        self._initial: Initialise | None = None
        """Initial values to offer again if the ps dies before its first snapshot; None once it has one."""

    def send(self, request: Request, *, is_followed: bool = False) -> Procedure[PendingRequest]:
        """Send a request and connect first if necessary. An unavailable ps shows only in ``settle``.

        Initial values are kept until the ps has them on record.
        """
        if isinstance(request, Initialise):
            self._initial = request
        wire = self._wire
        if wire is None or wire.lost:
            wire = yield from self._connect()
        return PendingRequest(request, (yield Send(wire, request, is_followed)) if wire else None)

    def close(self) -> Procedure[None]:
        """Close the connection; the next request opens another one."""
        if self._wire is not None:
            wire, self._wire = self._wire, None
            yield Close(wire)

    @property
    def keeps_initial(self) -> bool:
        """Whether the ps may need its initial values again."""
        return self._initial is not None

    def replace_initial(self, request: Initialise) -> None:
        """Replace the kept initial values by those of a later placement, if any are kept."""
        if self._initial is not None:
            self._initial = request

    def settle(self, pending: PendingRequest, version: int, is_latest: Callable[[int], bool]) -> Procedure[Answer]:
        """Wait for the answer and send the request again as often as necessary.

        Args:
            is_latest: tells whether no later version is known.

        Raises:
            MovedError: a later version is known.
            UserError: the ps says that the user's input is wrong.
            PinLostError: the pinned model is not available.
            PullDelayedError: the batch has to wait for other workers.
            ProtocolError: the ps says that the request is wrong, or its reply is.
            TransientError: the ps was unavailable for ``unavailable_s``, or the client was closed.
        """
        give_up_s = self._clock.monotonic() + self._settings.unavailable_s
        pauses = self._settings.backoff.pauses()
        while True:
            try:
                if pending.handle is None:
                    raise ConnectionLostError("cannot connect")
                answer: Answer = yield Receive(pending.handle)
                waiting = why_not_ready(answer.reply)
                if waiting is None:
                    _check_kind(answer, pending.request)
                    if isinstance(answer.reply, PullReply | PushReply):
                        self._initial = None  # Its first snapshot is registered.
                    return answer
                reason = waiting.message
                answer.release()
                if wants_initial_values(waiting) and self._initial is not None:
                    yield from self.send(self._initial)
            except ConnectionLostError as error:
                reason = str(error)
            if self._clock.monotonic() > give_up_s:
                raise TransientError(f"{self.ps} was unavailable for {self._settings.unavailable_s:.0f} s: {reason}")
            yield Pause(next(pauses), version)
            if not is_latest(version):
                raise MovedError(f"{self.ps} does not answer, and the placement has changed")
            again: PendingRequest = yield from self.send(pending.request)
            pending.handle, pending.repeated = again.handle, True

    def _connect(self) -> Procedure[Wire | None]:
        """A new connection; None while the ps can't be reached."""
        yield from self.close()
        registered = self._directory.resolve().get(self.ps)
        if registered is None:
            return None
        try:
            wire: Wire = yield Connect(self.ps, registered)
        except (ConnectionLostError, ProtocolError):
            return None
        if wire.identity != registered.incarnation:
            yield Close(wire)
            return None
        self._wire = wire
        return wire


def why_not_ready(reply: Reply) -> Refusal | None:
    """The refusal of a ps that is not ready yet; the request has to be sent again. Errors as ``settle``."""
    if not isinstance(reply, Refusal):
        return None
    match reply.kind:
        case RefusalKind.NOT_READY | RefusalKind.NOT_INITIALISED:
            return reply
        case RefusalKind.USER:
            raise UserError(reply.message)
        case RefusalKind.NO_PIN:
            raise PinLostError(reply.message)
        case RefusalKind.PULL_DELAYED:
            raise PullDelayedError(reply.message)
        case RefusalKind.MOVED:
            raise MovedError(reply.message)
        case _:
            raise ProtocolError(f"the ps refused ({reply.kind.name}): {reply.message}")


def wants_initial_values(refusal: Refusal) -> bool:
    """Whether a ps that is not ready died before its first snapshot and has to be offered the initial values again."""
    return refusal.kind is RefusalKind.NOT_INITIALISED


def _check_kind(answer: Answer, request: Request) -> None:
    kind = _REPLIES[type(request)]
    if not isinstance(answer.reply, kind):
        answer.release()
        raise ProtocolError(f"a ps answered with {type(answer.reply).__name__}, not {kind.__name__}")
