"""The best node for one more pod, without a look at all of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import le
from typing import NamedTuple

from elasticdl.controller.core.resources import Amounts, fits

Score = tuple[float, float]
"""Places for workers that one more pod costs, and what stays empty then."""
_NAMES_MIN = 64


@dataclass(eq=False, slots=True)
class Base:
    """Nodes with the same place for pods: what a pod costs there is the same, whatever workers stand there.

    Attributes:
        group: number of the nodes' labels and taints.
        potential: free room and that of workers.
        held: room that ps hold until their groups have moved. Other ps must not wait for it.
        nodes: their names; empty: it is gone for ever.
    """

    group: int
    potential: Amounts
    held: Amounts
    for_ps: Amounts
    nodes: set[str]
    order: list[str] | None = None

    def room(self, is_ps: bool) -> Amounts:
        """Room for pods if all workers leave."""
        return self.for_ps if is_ps else self.potential

    def in_order(self) -> list[str]:
        """The nodes by their names."""
        if self.order is None:
            self.order = sorted(self.nodes)
        return self.order


class Fill(NamedTuple):
    """Several equal pods on a node.

    Attributes:
        lost: places for workers that each costs, counted as if no worker stood there.
        waste: what stays empty then, as a share of the cluster.
    """

    pods: int
    lost: float
    waste: float
    needed: Amounts


@dataclass(eq=False, slots=True)
class _Level:
    """Nodes where one more pod costs the same.

    Attributes:
        names: a heap of those that may have room. Others are dropped when they come up.
        is_queued: whether the search's heap has the level.
    """

    score: Score
    names: list[str] = field(default_factory=list)
    names_max: int = _NAMES_MIN
    is_queued: bool = False


class Search:
    """Nodes with room for one more pod of a shape: a heap of levels, each with a heap of names.

    Args:
        room: room of a node for such a pod; None: the node is gone.
        base_of: node -> its base.
        score: what one more pod costs in a base; None: it takes none.
    """

    def __init__(
        self,
        request: Amounts,
        room: Callable[[str], Amounts | None],
        base_of: Mapping[str, Base],
        score: Callable[[Base], Score | None],
    ) -> None:
        self._request, self._room, self._base_of, self._score = request, room, base_of, score
        self._heap: list[tuple[Score, _Level]] = []
        self._levels: dict[Score, _Level] = {}
        self._level_of: dict[Base, _Level | None] = {}
        """Only of bases with nodes that had room: most have none, and their scores are not needed."""
        self.seen = 0
        """How many of the nodes with more room it knows."""
        self.idle = 0
        """Decisions for which nothing was asked."""

    def offer(self, nodes: Iterable[str]) -> None:
        """Nodes are new, or have more room, or other pods cost less there."""
        request, room, base_of, level_of, push = (
            self._request,
            self._room,
            self._base_of,
            self._level_of,
            heapq.heappush,
        )
        for node in nodes:
            # Nearly all are too small. The first test is in C, and called most often.
            if (free := room(node)) is None or not (all(map(le, request, free)) or fits(request, free)):
                continue
            base = base_of[node]
            try:
                level = level_of[base]
            except KeyError:
                level = self._enter(base)
            if level is not None:
                push(level.names, node)
                if not level.is_queued:
                    level.is_queued = True
                    push(self._heap, (level.score, level))

    def best(self) -> str | None:
        """The free node where the pod costs the least, the first one of several; None: no node has room."""
        request, room, base_of, level_of = self._request, self._room, self._base_of, self._level_of
        heap = self._heap
        while heap:
            level = heap[0][1]
            names = level.names
            while names:
                node = names[0]
                free = room(node)
                if free is not None and fits(request, free) and level_of.get(base_of[node]) is level:
                    return node
                heapq.heappop(names)
            heapq.heappop(heap)
            level.is_queued = False
        return None

    def clean(self) -> None:
        """Drop what is out of date."""
        for base in [base for base in self._level_of if not base.nodes]:
            del self._level_of[base]
        for _, level in self._heap:
            if len(level.names) > level.names_max:
                level.names = sorted(set(level.names))
                level.names_max = _NAMES_MIN + 2 * len(level.names)

    def _enter(self, base: Base) -> _Level | None:
        score = self._score(base)
        level = None if score is None else self._levels.setdefault(score, _Level(score))
        self._level_of[base] = level
        return level
