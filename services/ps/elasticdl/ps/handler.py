"""Frames in, frames out: the handler that the wire server calls for every request."""

from __future__ import annotations

from typing import assert_never

from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.round_sums import RoundExchange
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.names import Incarnation
from elasticdl.shared.process.clock import Clock, SystemClock
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines
from elasticdl.shared.wire.buffers import BufferPool, Bytes
from elasticdl.shared.wire.connection import Frame
from elasticdl.shared.wire.message_codec import decode_request, encode_reply
from elasticdl.shared.wire.messages import (
    Exchange,
    Floats,
    Initialise,
    NextBatch,
    Pull,
    Push,
    ReadMetrics,
    Refusal,
    RefusalKind,
    Reply,
)
from elasticdl.shared.wire.server import Response

_lines = RepeatedLines(get_logger())

PULL_WAIT_S = 0.1
"""Seconds. A worker that waits longer asks again; in between it can take another task or stop."""


class PsHandler:
    """Answers requests; called by one thread per connection.

    A request that is well-formed but wrong gets a refusal, so that its sender learns why; a malformed one closes the
    connection (``decode_request`` raises ProtocolError).

    Args:
        pull_wait_s: seconds that a pull or an exchange may wait here for other workers.
    """

    def __init__(
        self, core: PsCore, incarnation: Incarnation, *, pull_wait_s: float = PULL_WAIT_S, clock: Clock | None = None
    ) -> None:
        self._core = core
        self._sums = RoundExchange(core)
        self._incarnation = incarnation
        self._pull_wait_s = pull_wait_s
        self._clock = clock or SystemClock()
        self._pool = BufferPool()

    def __call__(self, frame: Frame) -> Response:
        """Answer one request."""
        request = decode_request(frame.meta, frame.tensors)
        try:
            match request:
                case Pull():
                    return self._pull(request, frame)
                case Push():
                    return self._respond(self._core.push(request, self._clock.monotonic()))
                case NextBatch():
                    return self._respond(self._core.next_batch(request))
                case Initialise():
                    return self._respond(self._core.initialise(request))
                case Exchange():
                    frame.before_waiting()
                    return self._respond(self._sums.exchange(request, self._pull_wait_s))
                case ReadMetrics():
                    return self._respond(self._core.read_metrics(request))
                case _:
                    assert_never(request)
        except RefusedError as error:
            return self._respond(error.refusal)
        except ProtocolError as error:
            return self._respond(Refusal(kind=RefusalKind.PROTOCOL, message=str(error)))
        except MemoryError:
            # Nothing has changed: an error while a push is applied is an InvariantError.
            _lines.warning("no memory for a request", request=type(request).__name__)
            return self._respond(Refusal(kind=RefusalKind.NOT_READY, message="this ps has no memory for the request"))

    def on_closed(self, sender: int) -> None:
        """A connection has ended."""
        self._core.pulls.on_disconnected(sender)

    def _pull(self, request: Pull, frame: Frame) -> Response:
        try:
            return self._pulled(request, frame.sender)
        except RefusedError as error:
            if error.refusal.kind is not RefusalKind.PULL_DELAYED:
                raise
        frame.before_waiting()
        now_s = self._clock.monotonic()
        self._core.await_admission(request, now_s=now_s, timeout_s=self._pull_wait_s, sender=frame.sender)
        return self._pulled(request, frame.sender)

    def _pulled(self, request: Pull, sender: int) -> Response:
        buffer = _ReplyBuffer(self._pool)
        try:
            pulled = self._core.pull(request, buffer.floats, now_s=self._clock.monotonic(), sender=sender)
            meta, tensors = encode_reply(pulled, self._incarnation)
        except BaseException:
            buffer.give_back()
            raise
        return Response(meta=meta, tensors=tensors, sent=buffer.give_back)

    def _respond(self, reply: Reply) -> Response:
        meta, tensors = encode_reply(reply, self._incarnation)
        return Response(meta=meta, tensors=tensors)


class _ReplyBuffer:
    """The buffer for the floats of a reply, taken from the pool when their number is known."""

    __slots__ = ("_buffer", "_pool")

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._buffer: Bytes | None = None

    def floats(self, size: int) -> Floats:
        self._buffer = self._pool.take(4 * size)
        return self._buffer.view("<f4")[:size]

    def give_back(self) -> None:
        if self._buffer is not None:
            self._pool.give_back(self._buffer)
