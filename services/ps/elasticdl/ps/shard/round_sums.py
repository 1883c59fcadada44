"""Sums over the batches of a round, for layers that normalise by all of them (ADR 11).

A contribution is a pure function of the round's weights and of the data, so it is no state: a worker that needs it
again computes it again. Only the last few rounds are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from elasticdl.ps.shard.admission import check_batch_number, check_plan, check_version
from elasticdl.ps.shard.core import PsCore
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import NO_DOUBLES, Doubles, Exchange, ExchangeReply

ROUNDS_KEPT = 4
"""The present round, and others whose workers were slow or frozen."""

_Place = tuple[int, bool]
"""Position in the step, and whether gradients are added."""


@dataclass(slots=True)
class _Round:
    """The contributions to one round.

    Attributes:
        generation: distinguishes it from the same round after it was forgotten.
        absent: tasks whose batches have no records.
        parts: for each sum the contributions by task.
        sums: those that are complete; their contributions are dropped.
    """

    generation: int
    absent: set[int] = field(default_factory=set)
    parts: dict[_Place, dict[int, Doubles]] = field(default_factory=dict)
    sums: dict[_Place, Doubles] = field(default_factory=dict)


class RoundSums:
    """Adds up the contributions of batches. Not thread-safe.

    The first contribution of a batch to a sum wins. A sum is taken in the order of the tasks in float64, so two runs
    give the same bits.
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self._kept: OrderedDict[tuple[int, int, str], _Round] = OrderedDict()
        self._generations = 0

    def add(self, request: Exchange) -> None:
        """Take the contribution of a batch of the plan, copied.

        Raises:
            ProtocolError: another batch contributed values of another shape to this sum.
        """
        round_ = self._round(request)
        place = request.position, request.backward
        if request.absent:
            round_.absent.add(request.task)
            for known in list(round_.parts):
                self._complete(round_, known, request)
        elif place not in round_.sums:
            parts = round_.parts.setdefault(place, {})
            if any(part.shape != request.values.shape for part in parts.values()):
                raise ProtocolError(f"task {request.task}, batch {request.batch}: its values have another shape")
            parts.setdefault(request.task, request.values.copy())
            self._complete(round_, place, request)

    def reply(self, request: Exchange) -> ExchangeReply:
        """The sum that a contribution belongs to, or which batches are missing."""
        round_ = self._round(request)
        place = request.position, request.backward
        if request.absent or place in round_.sums:
            return ExchangeReply(generation=round_.generation, values=round_.sums.get(place, NO_DOUBLES))
        return ExchangeReply(
            generation=round_.generation, missing=self._missing(round_, place, request), values=NO_DOUBLES
        )

    def _round(self, request: Exchange) -> _Round:
        key = (self._rounds.cohort(TaskId(request.task)).start, request.batch, request.weights)
        if key not in self._kept:
            self._generations += 1
            self._kept[key] = _Round(self._generations)
            if len(self._kept) > ROUNDS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _missing(self, round_: _Round, place: _Place, request: Exchange) -> tuple[int, ...]:
        present = round_.parts.get(place, {}).keys() | round_.absent
        members = self._rounds.members(TaskId(request.task), request.batch)
        return tuple(task for task in members if task not in present)

    def _complete(self, round_: _Round, place: _Place, request: Exchange) -> None:
        if not self._missing(round_, place, request):
            parts = round_.parts.pop(place)
            round_.sums[place] = np.sum([parts[task] for task in sorted(parts)], axis=0)


class RoundExchange:
    """The sums of a job, and the workers that wait for them. Thread-safe.

    It needs neither the model nor its lock, so a push never waits for it.
    """

    def __init__(self, core: PsCore) -> None:
        self._core = core
        self._sums = RoundSums(core.policy.rounds) if core.policy.rounds else None
        self._changed = threading.Condition()

    def exchange(self, request: Exchange, timeout_s: float) -> ExchangeReply:
        """Take a contribution, and wait for the other batches of its round, at most for ``timeout_s``.

        Raises:
            ProtocolError: it does not fit the plan or other contributions, or this is not the gate of such a job.
        """
        sums, placement = self._sums, self._core.placement
        check_plan(request.plan, self._core.plan)
        check_batch_number(request.task, request.batch, self._core.plan)
        check_version(request.placement_version, placement.version)
        if sums is None or placement.gate != self._core.number:
            raise ProtocolError("only the gate of a synchronous job adds up contributions to a round")
        with self._changed:
            sums.add(request)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not sums.reply(request).missing, timeout_s)
            return sums.reply(request)
