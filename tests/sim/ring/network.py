"""Connections between simulated members: messages in order, until one end closes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from elasticdl.worker.ring.core.messages import BatchKey


@dataclass
class Link:
    """A connection of a follower to its leader in one generation.

    Attributes:
        ends: ranks of leader and follower.
        ready: ranks that have connected.
        closed: ranks that have closed it, or died.
        told: ranks that know that it is lost.
    """

    generation: int
    ends: tuple[int, int]
    ready: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    told: set[int] = field(default_factory=set)
    has_greeted: bool = False
    queues: dict[int, deque[Any]] = field(default_factory=dict)
    """By the rank that receives."""

    def __post_init__(self) -> None:
        self.queues = {rank: deque() for rank in self.ends}

    def other(self, rank: int) -> int:
        return self.ends[1] if rank == self.ends[0] else self.ends[0]

    @property
    def is_up(self) -> bool:
        return len(self.ready) == 2

    def send(self, rank: int, message: Any) -> None:
        """Send from a rank; lost if the connection is."""
        if self.is_up and not self.closed:
            self.queues[self.other(rank)].append(message)

    def close(self, rank: int, *, resets: bool) -> None:
        """Close an end. With a reset, what was on its way is lost; otherwise it arrives late."""
        if rank not in self.closed:
            self.closed.add(rank)
            if resets:
                for queue in self.queues.values():
                    queue.clear()


@dataclass
class Reduction:
    """A round in the ring of one generation.

    Attributes:
        begun: ranks that take part so far, with what they give.
        done: ranks that have the sum.
        broken: a rank has closed its connections, so the others may fail.
    """

    size: int
    begun: dict[int, tuple[BatchKey, ...]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    broken: bool = False

    @property
    def is_possible(self) -> bool:
        return len(self.begun) == self.size

    def total(self, generation: int) -> tuple[int, tuple[BatchKey, ...]]:
        """The bits of the sum: they depend on the generation, as the order of additions does."""
        return generation, tuple(sorted(key for keys in self.begun.values() for key in keys))
