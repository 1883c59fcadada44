"""What the ring needs from the rest of the worker, as small Protocols."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire.buffers import Bytes
from elasticdl.worker.ports import Doubles, Floats

LEADER = 0
"""Rank of the member that leads: the first one of its generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A membership, decided by the master. Numbers only grow, from 1.

    The master forms the next one when all members of the last one have reported that they are ready or are known to be
    gone; at once, without waiting for reports, when a member is known to be gone (what is left of the ring may be
    blocked by it, and the new generation interrupts that); and when a new member is ready and ``is_near``, or there
    are no others. A report with ``left`` older than the present generation, from one of its members, says nothing new.

    Attributes:
        members: by seniority; the first one leads. A member that has a state precedes all that have none.
    """

    number: int
    members: tuple[RingMember, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """A batch of a round, without its gradient.

    Attributes:
        rate: the learning rate, if the worker sets it.
        is_empty: it has no gradient: no records, or they overflowed.
        statistics: float32, as ``PushRequest.statistics_update``.
        metric_states: float64, as ``PushRequest.metric_states``.
    """

    task: TaskId
    batch: int
    batches: int
    records: int
    checksum: int
    is_empty: bool
    rate: float | None = None
    statistics: Floats = field(default_factory=lambda: np.empty(0, np.float32))
    metric_states: Doubles = field(default_factory=lambda: np.empty(0, np.float64))


class ReplicaState(Protocol):
    """One replica of the model with its ledger. Calls are serialised by the replica set."""

    @property
    def has_model(self) -> bool:
        """Whether there is a state at all; a joiner has none before it has copied one."""
        ...

    @property
    def step(self) -> int:
        """Committed rounds that this state contains, counted so that equal states have equal numbers everywhere."""
        ...

    @property
    def gradient_size(self) -> int:
        """Elements of the flat dense gradient, and of the magnitudes behind it."""
        ...

    @property
    def magnitudes(self) -> tuple[int, int]:
        """Where the magnitudes begin, and the power of the weights that they are added up with."""
        ...

    def round_of(self, task: TaskId, batch: int) -> Sequence[tuple[TaskId, int]]:
        """The batches that make one update with this one, in the order of the plan, without those in the ledger."""
        ...

    def next_batch(self, task: TaskId, batches: int) -> int:
        """The first batch of a task that the ledger lacks."""
        ...

    def is_open(self, task: TaskId, batch: int) -> bool:
        """Whether the round of a batch is the next one to commit."""
        ...

    def apply(self, batches: Sequence[BatchFacts], gradient: Floats | Doubles | None) -> None:
        """Commit a round.

        Args:
            batches: all batches of the round that the ledger lacked, in the order of the plan.
            gradient: float64: the sum of records x gradient over the batches; float32: their mean, weighted by records;
                None if all of them are empty. The weights of magnitudes have their power.

        Raises:
            InvariantError: the state is undefined now, and the process must die.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """Whether every task of the plan is in the ledger."""
        ...

    def checksums(self) -> tuple[int, ...]:
        """A checksum of the weights of each tensor, of 32 bits: equal on all members that have equal weights."""
        ...

    def save(self) -> Callable[[], Sequence[Bytes]]:
        """A copy of the whole state, for a joiner.

        Returns:
            What makes the copy of the state as it is now, in any thread, while rounds are applied: buffers that
            ``load`` takes on any member of the same job. Called once.
        """
        ...

    def load(self, parts: Sequence[Bytes]) -> None:
        """Take over a state. Raises ``UserError``: it is of another model."""
        ...


class Membership(Protocol):
    """What a member tells the master and learns from it. Any thread may call."""

    def report_ready(self, *, left: int, step: int, has_model: bool, is_near: bool, reason: str) -> None:
        """Ask to be a member of the next generation.

        Args:
            left: the generation that this member has given up; 0: it was in none.
            step: ``ReplicaState.step``.
            is_near: it has followed the present generation, and is about as far: the others need not wait for it.
            reason: why, in words: "worker-2 closed its connection".
        """
        ...

    def report_difference(self, *, step: int, tensor: int) -> None:
        """Tell that the weights of this member were not those of the others after a step, in this tensor first."""
        ...

    def on_generation(self, receive: Callable[[Generation], None]) -> None:
        """Call ``receive`` with the present generation, if there is one, and with each later one."""
        ...


class Leading(Protocol):
    """What the leader does besides: it serves its replica as ``ps-0``."""

    def lead(self, generation: Generation) -> None:
        """This member leads a new generation: serve the replica under a new incarnation. Returns soon.

        Without a model here, it is restored from the last snapshot, or initialised by this worker;
        ``ReplicaState.has_model`` becomes true then, and ``ReplicaSet.model_ready()`` is called. With a model, the
        ledger to be published is that of the state now: what later rounds add counts under the new incarnation.
        """
        ...

    def follow(self, generation: Generation) -> None:
        """Another member leads: stop serving, if this member did. A copied state may be loaded once this returns."""
        ...

    def credits(self, generation: Generation) -> Mapping[PodName, Incarnation]:
        """The incarnation of each ps that credits what a generation commits; the same on all its members."""
        ...
