"""Bounded staleness: which batches the gate answers for, and whether they are as fresh as it says.

The gate answers for a batch that it knew when its push came. It excepts batches that became overdue, those that a
former gate had admitted, and those that were outstanding when a batch was absorbed that it did not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.shared.names import Incarnation
from elasticdl.shared.wire.message_codec import decode_reply
from elasticdl.shared.wire.messages import Push, PushReply, Request

if TYPE_CHECKING:
    from tests.sim.ps import PsProcess

    from elasticdl.ps.shard.staleness_gate import BatchKey
    from elasticdl.shared.wire.server import Response
    from elasticdl.worker.ps_client.requests import PushOutcome


class StalenessWatch:
    """Watches the gates of a job, whichever ps is the gate."""

    def __init__(self) -> None:
        self._gate: Incarnation | None = None
        self._known: frozenset[BatchKey] = frozenset()
        self._excepted: set[BatchKey] = set()
        self._promised: dict[BatchKey, int] = {}
        """The largest bound by which a pull was admitted while a batch was outstanding."""
        self._answered: dict[BatchKey, int] = {}
        """Staleness at the gate of each batch that it answers for, until the worker knows of it."""
        self._is_disturbed = False
        """Whether a push may be under way that the gate does not know: others may be later by it on another ps."""

    def before(self, ps: PsProcess) -> frozenset[BatchKey]:
        """The batches that a ps bounds before it answers a request."""
        gate = ps.core.pulls.gate
        if gate is None:
            return frozenset()
        bounded = gate.bounded
        if ps.incarnation != self._gate:
            self._is_disturbed = self._gate is not None
            self._excepted |= self._known
            self._gate, self._known = ps.incarnation, bounded
        return bounded

    def after(self, ps: PsProcess, request: Request, response: Response, bounded: frozenset[BatchKey]) -> None:
        """A ps has answered a request."""
        gate = ps.core.pulls.gate
        if gate is None:
            return
        key = (request.task, request.batch) if isinstance(request, Push) else None
        vanished = self._known - gate.bounded - ({key} if key else set())
        self._excepted |= vanished
        self._is_disturbed = self._is_disturbed or bool(vanished)
        self._known = gate.bounded
        self._promised |= {other: max(gate.bound, self._promised.get(other, 0)) for other in self._known}
        reply, _ = decode_reply(response.meta, response.tensors)
        if key is None or not isinstance(reply, PushReply) or reply.staleness is None:
            return
        if key not in bounded:
            self._excepted |= bounded
            self._is_disturbed = True
        elif key not in self._excepted:
            self._answered[key] = reply.staleness

    def problem(self, key: BatchKey, outcome: PushOutcome, pulled_version: int) -> str:
        """What is wrong with the staleness of a batch; empty: nothing.

        Args:
            key: the batch.
            outcome: what all ps answered to its push.
            pulled_version: version of the placement by which it was pulled.
        """
        staleness = self._answered.pop(key, None)
        bound = self._promised.pop(key, 0)
        if staleness is None or pulled_version != outcome.placement_version:
            return ""
        if not self._is_disturbed:
            staleness = max(staleness, outcome.staleness or 0)
        if staleness > bound:
            return f"batch {key} was absorbed {staleness} updates late, not at most {bound}"
        return ""
