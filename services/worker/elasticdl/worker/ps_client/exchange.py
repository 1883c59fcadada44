"""Sums over all batches of a round, which the gate adds up."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, Service, pod_name
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.procedures import Procedure
from elasticdl.shared.wire.messages import Doubles, Exchange, ExchangeReply
from elasticdl.worker.ps_client.connection import (
    PLACEMENT_POLL_S,
    MovedError,
    Pause,
    PsClientSettings,
    PsConnection,
    PsDirectory,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSum:
    """What the gate answered to a contribution.

    Attributes:
        origin: the instance of the gate and its generation of the round; changes when contributions were forgotten.
        values: float64, the sum; empty while batches are missing.
    """

    origin: tuple[Incarnation, int]
    missing: tuple[int, ...] = ()
    values: Doubles


class ExchangeCalls:
    """Sends contributions to the gate, one at a time on a connection of their own. Pure procedures.

    On a shared connection, a contribution would wait behind a request that waits for this very contribution.
    """

    def __init__(self, directory: PsDirectory, *, clock: Clock, settings: PsClientSettings) -> None:
        self._directory = directory
        self._clock = clock
        self._settings = settings
        self._connection: PsConnection | None = None

    def exchange(self, request: Exchange) -> Procedure[RoundSum]:
        """Contribute, and wait a little for the other batches."""
        while True:
            placement = self._directory.placement()
            connection = yield from self._gate(placement)
            pending = yield from connection.send(replace(request, placement_version=placement.version))
            try:
                answer = yield from connection.settle(pending, placement.version, self._is_latest)
            except MovedError:
                yield Pause(PLACEMENT_POLL_S, placement.version)
                continue
            reply = answer.reply
            assert isinstance(reply, ExchangeReply)
            found = RoundSum(
                origin=(answer.incarnation, reply.generation), missing=reply.missing, values=reply.values.copy()
            )
            answer.release()
            return found

    def close_moved(self) -> Procedure[None]:
        """Close the connection if another ps is the gate now."""
        gate = pod_name(Service.PS, self._directory.placement().gate)
        if self._connection is not None and self._connection.ps != gate:
            connection, self._connection = self._connection, None
            yield from connection.close()

    def _gate(self, placement: Placement) -> Procedure[PsConnection]:
        yield from self.close_moved()
        if self._connection is None:
            name = pod_name(Service.PS, placement.gate)
            self._connection = PsConnection(name, directory=self._directory, clock=self._clock, settings=self._settings)
        return self._connection

    def _is_latest(self, version: int) -> bool:
        return self._directory.placement().version <= version
