"""The client of all ps for threads that block: the procedures of ``calls.py``, executed over sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from elasticdl.shared.errors import TransientError
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import Incarnation, TaskId
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.procedures import Procedure
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.client import Ticket, WireClient
from elasticdl.shared.wire.message_codec import decode_reply, encode_request
from elasticdl.shared.wire.messages import NO_FLOATS, Exchange, Floats, Ids, PullReply
from elasticdl.worker.ps_client.calls import PsCalls, Settled
from elasticdl.worker.ps_client.connection import (
    Answer,
    Close,
    Connect,
    Pause,
    PsClientSettings,
    PsDirectory,
    Receive,
    Send,
    Step,
)
from elasticdl.worker.ps_client.exchange import ExchangeCalls, RoundSum
from elasticdl.worker.ps_client.requests import (
    NO_INSTANCES,
    EpochMetrics,
    Instances,
    Pulled,
    PushOutcome,
    PushRequest,
    TaskProgress,
)
from elasticdl.worker.ps_client.splitter import Gathering

R = TypeVar("R")
PULL_ROWS_MAX = 1 << 16
"""Rows of one request of ``pull_rows``."""
_POLL_S = 0.02
"""Seconds between two looks for a later placement during a pause."""


class PsClient:
    """The parameter servers of a job as one; see the package for threads and arrays."""

    def __init__(
        self,
        directory: PsDirectory,
        *,
        token: str,
        peer: str,
        plan: str,
        signature: ModelSignature,
        settings: PsClientSettings | None = None,
    ) -> None:
        settings = settings or PsClientSettings()
        self.signature = signature
        self._directory = directory
        self._settings = settings
        self._lock = threading.Lock()
        self._idle_exchanges: list[ExchangeCalls] = []
        self._gate = directory.placement().gate
        """The gate when idle connections were closed last."""
        self._pool = BufferPool()
        self._calls = PsCalls(directory, plan=plan, signature=signature, clock=SystemClock(), settings=settings)
        self._sockets = SocketDriver(directory, token=token, peer=peer, pool=self._pool, settings=settings)
        self._numbers = {table.name: number for number, table in enumerate(signature.tables)}

    def initialise(self, dense: Floats) -> bool:
        """See ``PsCalls.initialise``."""
        return self._sockets.run(self._calls.initialise(dense))

    def next_batch(self, task: TaskId, batches: int) -> TaskProgress:
        """See ``PsCalls.next_batch``."""
        return self._sockets.run(self._calls.next_batch(task, batches))

    def read_metrics(self, epoch: int, skipped: tuple[int, ...] = ()) -> EpochMetrics:
        """See ``PsCalls.read_metrics``."""
        return self._sockets.run(self._calls.read_metrics(epoch, skipped))

    def pull(
        self,
        ids: Mapping[str, Ids],
        *,
        pin: int = 0,
        dense: bool = True,
        batch: tuple[int, int] | None = None,
        only: Instances = NO_INSTANCES,
        averages: bool = False,
    ) -> Pulled:
        """See ``PsCalls.pull``."""
        pulling = self._calls.pull(ids, pin=pin, dense=dense, batch=batch, only=only, averages=averages)
        return self._gathered(self._sockets.run(pulling))

    def pull_rows(self, table: str, ids: Ids, *, pin: int = 0, only: Instances = NO_INSTANCES) -> Floats:
        """Rows float32[n, width] of one table for any number of ids; the caller owns the array."""
        out = np.empty((ids.size, self.signature.tables[self._numbers[table]].width), np.float32)
        for start in range(0, ids.size, PULL_ROWS_MAX):
            pulled = self.pull({table: ids[start : start + PULL_ROWS_MAX]}, pin=pin, dense=False, only=only)
            out[start : start + PULL_ROWS_MAX] = pulled.rows[table]
            pulled.release()
        return out

    def push(self, request: PushRequest) -> PushOutcome:
        """See ``PsCalls.push``."""
        return self._sockets.run(self._calls.push(request))

    def push_and_pull(
        self, request: PushRequest, ids: Mapping[str, Ids], batch: tuple[int, int]
    ) -> tuple[PushOutcome, Pulled | None, float]:
        """See ``PsCalls.push_and_pull``."""
        outcome, settled, pull_s = self._sockets.run(self._calls.push_and_pull(request, ids, batch))
        return outcome, None if settled is None else self._gathered(settled), pull_s

    def exchange(self, request: Exchange) -> RoundSum:
        """See ``ExchangeCalls.exchange``. Requests that are under way at the same time have a connection each."""
        try:
            calls = self._idle_exchanges.pop()
        except IndexError:
            calls = ExchangeCalls(self._directory, clock=SystemClock(), settings=self._settings)
        try:
            return self._sockets.run(calls.exchange(request))
        finally:
            self._sockets.run(calls.close_moved())
            with self._lock:
                self._idle_exchanges.append(calls)
            self._close_moved_exchanges()

    def _close_moved_exchanges(self) -> None:
        """Close idle connections to a ps that is no longer the gate."""
        gate = self._directory.placement().gate
        with self._lock:
            if gate == self._gate:
                return
            self._gate = gate
            idle, self._idle_exchanges = self._idle_exchanges, []
        for calls in idle:
            self._sockets.run(calls.close_moved())

    def close(self) -> None:
        """Close all connections; calls that wait fail with TransientError."""
        self._sockets.close()

    def _gathered(self, settled: Settled) -> Pulled:
        sent = settled.sent
        replies: Sequence[PullReply] = settled.replies
        asked = [request for request in sent.parts.requests if isinstance(request, messages.Pull)]
        try:
            gathering = Gathering(self._pool)
            dense = gathering.dense(sent.splitter.parts, replies) if asked[0].dense else NO_FLOATS
            rows = gathering.rows(sent.parts.rows, [request.tables for request in asked], replies)
        except BaseException:
            settled.release()
            raise
        return Pulled(
            dense=dense,
            rows=MappingProxyType(rows),
            iterations=settled.iterations(),
            step=min([reply.step for reply in replies]),
            release=gathering.releasing([answer.release for answer in settled.answers]),
        )


class SocketDriver:
    """Executes the steps of procedures with blocking sockets; any thread may call ``run``."""

    def __init__(
        self, directory: PsDirectory, *, token: str, peer: str, pool: BufferPool, settings: PsClientSettings
    ) -> None:
        self._directory = directory
        self._token = token
        self._peer = peer
        self._pool = pool
        self._settings = settings
        self._closing = threading.Event()
        self._open: set[WireClient] = set()

    def run(self, procedure: Procedure[R]) -> R:
        """Run a procedure to its end."""
        try:
            step = next(procedure)
            while True:
                try:
                    result = self._execute(step)
                except Exception as error:  # The procedure decides about its steps' errors.
                    step = procedure.throw(error)
                else:
                    step = procedure.send(result)
        except StopIteration as stop:
            return cast("R", stop.value)

    def close(self) -> None:
        """Close all connections; procedures that pause or wait for an answer fail."""
        self._closing.set()
        for wire in list(self._open):
            wire.close()

    def _execute(self, step: Step) -> Any:
        match step:
            case Send(wire=WireClient() as wire, request=request, is_followed=is_followed):
                return wire.send(*encode_request(request), is_followed=is_followed)
            case Receive(handle=Ticket() as ticket):
                return _received(ticket)
            case Connect(address=registered):
                if self._closing.is_set():
                    raise TransientError("the client is closed")
                wire = WireClient(
                    registered.address,
                    token=self._token,
                    peer=self._peer,
                    pool=self._pool,
                    settings=self._settings.wire,
                )
                self._open.add(wire)
                if len(self._directory.placement().holders) > 1:
                    for each in tuple(self._open):  # Those of a time with one ps, too.
                        each.receive_always()
                return wire
            case Close(wire=WireClient() as wire):
                self._open.discard(wire)
                return wire.close()
            case Pause(seconds=seconds, version=version):
                return self._pause(seconds, version)
            case _:
                raise TypeError(f"no socket can execute {step}")

    def _pause(self, seconds: float, version: int) -> None:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and self._directory.placement().version <= version:
            if self._closing.wait(min(left_s, _POLL_S)):
                raise TransientError("the connection was closed while waiting for an answer")


def _received(ticket: Ticket) -> Answer:
    frame = ticket.result()
    reply, incarnation = decode_reply(frame.meta, frame.tensors)
    return Answer(reply, Incarnation(incarnation), frame.release)
