"""The connection to one ps: connects, sends in order, and repeats a request while the ps restarts. Pure procedures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from elasticdl.shared.errors import ProtocolError, TransientError
from elasticdl.shared.names import PodName
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.procedures import Procedure
from elasticdl.shared.process.retries import Backoff
from elasticdl.shared.wire.client import ClientSettings
from elasticdl.shared.wire.connection import ConnectionLostError
from elasticdl.shared.wire.messages import Initialise, Request
from elasticdl.worker.ps_client.rules import (
    MovedError,
    has_model_on_record,
    is_registered_incarnation,
    wants_initial_values,
    why_not_ready,
)
from elasticdl.worker.ps_client.steps import Answer, Close, Connect, Pause, PsDirectory, Receive, Send, Wire

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
        repeated: whether it was sent more than once.
    """

    request: Request
    handle: Any | None
    repeated: bool = False


class PsConnection:
    """One ps.

    Args:
        clock: monotonic time.
    """

    def __init__(self, ps: PodName, *, directory: PsDirectory, clock: Clock, settings: PsClientSettings) -> None:
        self.ps = ps
        self._directory = directory
        self._clock = clock
        self._settings = settings
        self._wire: Wire | None = None
        self._initial: Initialise | None = None
        """Initial values to offer again if the ps dies before its first snapshot; None once it has one."""

    def send(self, request: Request, *, is_followed: bool = False) -> Procedure[PendingRequest]:
        """Send a request and connect first if necessary. An unavailable ps shows only in ``settle``."""
        wire = yield from self._connected()
        return PendingRequest(request, (yield Send(wire, request, is_followed)) if wire else None)

    def initialise(self, request: Initialise) -> Procedure[PendingRequest]:
        """Send initial values, and keep them until the ps has them on record."""
        self._initial = request
        return (yield from self.send(request))

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
            version: version of the placement by which the request was split.
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
                answer: Answer = yield from self._receive(pending)
                waiting = why_not_ready(answer.reply)
                if waiting is None:
                    if has_model_on_record(answer.reply):
                        self._initial = None
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

    @staticmethod
    def _receive(pending: PendingRequest) -> Procedure[Answer]:
        if pending.handle is None:
            raise ConnectionLostError("cannot connect")
        answer: Answer = yield Receive(pending.handle)
        return answer

    def _connected(self) -> Procedure[Wire | None]:
        """The open connection or a new one; None while the ps can't be reached."""
        if self._wire is not None and not self._wire.lost:
            return self._wire
        yield from self.close()
        registered = self._directory.resolve().get(self.ps)
        if registered is None:
            return None
        try:
            wire: Wire = yield Connect(self.ps, registered)
        except (ConnectionLostError, ProtocolError):
            return None
        if not is_registered_incarnation(wire.identity, registered.incarnation):
            yield Close(wire)
            return None
        self._wire = wire
        return wire
