"""The ring of a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.messages.events import RingMemberReady
from elasticdl.shared.names import Incarnation, PodInstance, PodName

DIFFERENCES_MAX = 20
"""Differences between replicas that are kept for the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyWorker:
    """A worker that asks to be a member of the next generation."""

    incarnation: Incarnation
    said: RingMemberReady


@dataclass(slots=True, kw_only=True)
class Ring:
    """The present generation, and who wants to be in the next one.

    Attributes:
        generation: number of the present generation; 0: there was none.
        members: its members by seniority; empty: no process of the present run was in one.
        ready: workers that have asked since it was formed.
        differences: a sentence for each time that a replica was not equal to the others.
        instances: the process of each member and of each of these. A worker that waits for the ring is not RUNNING yet.
    """

    generation: int = 0
    members: tuple[RingMember, ...] = ()
    ready: dict[PodName, ReadyWorker] = field(default_factory=dict)
    instances: dict[Incarnation, PodInstance] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def leader(self) -> PodName | None:
        """The member that serves the model."""
        return self.members[0].worker if self.members else None
