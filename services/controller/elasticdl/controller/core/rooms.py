"""The room of nodes, and which nodes have room of the same kind: what is found for one holds for all of them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elasticdl.controller.core.cluster import Node
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.resources import Amounts, Units, add, count, fits, share, subtract

_PS_TRIED = 8
"""Most ps that are tried in a room beside workers to see how well these fill it."""


class Kind(NamedTuple):
    """Everything that counts for the pods that a node may take, but for the owners of its workers.

    Attributes:
        group: number of the nodes' labels and taints.
        free: room once all that leaves is gone.
        held: room that ps hold until their groups have moved. Other ps must not wait for it.
        potential: free room and that of workers.
    """

    group: int
    free: Amounts
    held: Amounts
    potential: Amounts

    def room(self, is_ps: bool) -> Amounts:
        """Room for a pod if no worker leaves."""
        return subtract(self.free, self.held) if is_ps else self.free


@dataclass(frozen=True, slots=True)
class Fill:
    """Several equal pods on a node of a kind.

    Attributes:
        lost: places for workers that each costs, counted as if no worker stood there.
        is_free: whether no worker has to leave.
        waste: what stays empty then, as a share of the cluster.
    """

    pods: int
    lost: float
    is_free: bool
    waste: float
    needed: Amounts


@dataclass(slots=True)
class _Search:
    """Kinds with room for one more pod of a shape, best first.

    Attributes:
        heap: (lost, waste), number of the push, kind.
        seen: how many new kinds it knows.
        node: the last answer, and what it cost; -1: none.
    """

    heap: list[tuple[tuple[float, float], int, Kind]]
    seen: int
    node: int = -1
    lost: float = 0.0


class Rooms:
    """Room by number of the node.

    Args:
        usual: the requests of most workers and of most ps: room that does not hold one is lost for them.
        constraints: all that pods may have.
    """

    def __init__(
        self, nodes: Sequence[Node], units: Units, usual: tuple[Amounts, Amounts], constraints: Collection[Constraint]
    ) -> None:
        self.worker, self.ps = usual
        self.free = [units.amounts(node.allocatable) for node in nodes]
        self.total = units.zero
        self._held = [units.zero for _ in nodes]
        self._by_workers = [units.zero for _ in nodes]
        self._groups, self._allowed = _groups(nodes, list(constraints))
        self._largest: dict[int, list[Amounts]] = {}
        for number, amounts in enumerate(self.free):
            self.total = add(self.total, amounts)
            known = self._largest.setdefault(self._groups[number], [])
            if amounts not in known:
                known.append(amounts)
        self._kinds: list[Kind] = []
        self._nodes: dict[Kind, set[int]] = {}
        self._order: dict[Kind, list[int]] = {}
        self._fills: dict[tuple[Kind, Amounts, int, bool], list[Fill]] = {}
        self._wastes: dict[Amounts, float] = {}
        self._searches: dict[tuple[Amounts, Constraint, bool], _Search] = {}
        self._new: list[Kind] = []
        """Kinds in the order in which they came up, which searches look at when they are asked next."""
        self._pushed = 0
        for number in range(len(nodes)):
            self._kinds.append(kind := self._kind(number))
            self._enter(number, kind)

    # Changes.

    def take(self, node: int, request: Amounts) -> None:
        """A pod that is no worker takes room."""
        self.free[node] = subtract(self.free[node], request)
        self._changed(node)

    def give(self, node: int, request: Amounts) -> None:
        """A pod that is no worker gives its room."""
        self.free[node] = add(self.free[node], request)
        self._changed(node)

    def take_for_worker(self, node: int, request: Amounts) -> None:
        """A worker takes room."""
        self._by_workers[node] = add(self._by_workers[node], request)
        self.take(node, request)

    def give_from_worker(self, node: int, request: Amounts) -> None:
        """A worker gives its room."""
        self._by_workers[node] = subtract(self._by_workers[node], request)
        self.give(node, request)

    def hold(self, node: int, request: Amounts, times: int) -> None:
        """A ps that leaves holds its room until its groups have moved."""
        if any(request):
            self._held[node] = add(self._held[node], request, times)
            self._changed(node)

    def _kind(self, node: int) -> Kind:
        free = self.free[node]
        return Kind(self._groups[node], free, self._held[node], add(free, self._by_workers[node]))

    def _changed(self, node: int) -> None:
        before, kind = self._kinds[node], self._kind(node)
        nodes = self._nodes[before]
        nodes.discard(node)
        if not nodes:
            del self._nodes[before], self._order[before]
        self._kinds[node] = kind
        self._enter(node, kind)

    def _enter(self, node: int, kind: Kind) -> None:
        nodes = self._nodes.get(kind)
        if nodes is not None:
            nodes.add(node)
            heapq.heappush(self._order[kind], node)
            return
        self._nodes[kind], self._order[kind] = {node}, [node]
        self._new.append(kind)

    # Questions.

    def kind(self, node: int) -> Kind:
        """The kind of a node now."""
        return self._kinds[node]

    def kinds(self, constraint: Constraint) -> Iterable[Kind]:
        """Kinds of the nodes that allow such pods."""
        allowed = self._allowed[constraint]
        return [kind for kind in self._nodes if kind.group in allowed]

    def allows(self, constraint: Constraint, node: int) -> bool:
        """Whether a node allows such pods."""
        return self._groups[node] in self._allowed[constraint]

    def any_allows(self, constraint: Constraint) -> bool:
        """Whether some node allows such pods."""
        return bool(self._allowed[constraint])

    def large_enough(self, request: Amounts, constraint: Constraint) -> set[int]:
        """Nodes that would hold such a pod if they were empty, by the groups of their labels."""
        return {
            group
            for group in self._allowed[constraint]
            if any(fits(request, amounts) for amounts in self._largest.get(group, ()))
        }

    def nodes(self, kind: Kind) -> list[int]:
        """All nodes of a kind."""
        return sorted(self._nodes.get(kind, ()))

    def first(self, kind: Kind) -> int:
        """The node with the lowest number of a kind that there is."""
        order, nodes = self._order[kind], self._nodes[kind]
        while order[0] not in nodes:
            heapq.heappop(order)
        return order[0]

    def fills(self, kind: Kind, request: Amounts, most: int, is_ps: bool) -> list[Fill]:
        """1, 2 and more equal pods on a node of a kind, as far as they fit once workers have left."""
        key = (kind, request, min(most, count(request, kind.potential)), is_ps)
        if (found := self._fills.get(key)) is None:
            found = self._fills[key] = self._compute(*key)
        return found

    def _compute(self, kind: Kind, request: Amounts, most: int, is_ps: bool) -> list[Fill]:
        room = kind.room(is_ps)
        potential = add(room, subtract(kind.potential, kind.free))
        before, found, needed = count(self.worker, potential), [], subtract(request, request)
        for pods in range(1, most + 1):
            needed = add(needed, request)
            if not fits(needed, potential):
                break
            after = subtract(potential, needed)
            lost = (before - count(self.worker, after)) / pods
            found.append(Fill(pods, lost, fits(needed, room), self._waste(after), needed))
        return found

    def _waste(self, room: Amounts) -> float:
        """What stays empty in a room that workers and ps fill as well as they can, as a share of the cluster."""
        if room in self._wastes:
            return self._wastes[room]
        least, left = 1.0, room
        for _ in range(min(count(self.ps, room), _PS_TRIED) + 1):
            rest = add(left, self.worker, -count(self.worker, left))
            least = min(least, share(rest, self.total))
            left = subtract(left, self.ps)
        self._wastes[room] = least
        return least

    def best(self, request: Amounts, constraint: Constraint, is_ps: bool = False) -> int | None:
        """The free node where one more pod costs the fewest places for workers; None: no node has room."""
        key = request, constraint, is_ps
        search = self._searches.get(key)
        if search is None:
            search = self._searches[key] = _Search([], len(self._new))
            for kind in self._nodes:
                self._offer(search.heap, kind, request, constraint, is_ps)
        elif (
            search.node >= 0
            and not is_ps
            and fits(request, self.free[search.node])
            and self.fills(self._kinds[search.node], request, 1, is_ps)[0].lost <= search.lost
        ):
            return search.node  # A node is filled up first. Most answers are found so.
        for kind in dict.fromkeys(self._new[search.seen :]):
            if kind in self._nodes:
                self._offer(search.heap, kind, request, constraint, is_ps)
        search.seen, heap = len(self._new), search.heap
        search.node = -1
        while heap:
            score, _, kind = heap[0]
            if kind not in self._nodes:
                heapq.heappop(heap)
                continue
            # Of several kinds that are as good, the node with the lowest number.
            ties: list[tuple[tuple[float, float], int, Kind]] = []
            while heap and heap[0][0] == score:
                entry = heapq.heappop(heap)
                if entry[2] in self._nodes and all(each[2] != entry[2] for each in ties):
                    ties.append(entry)
            for entry in ties:
                heapq.heappush(heap, entry)
            search.node, search.lost = min(self.first(entry[2]) for entry in ties), score[0]
            return search.node
        return None

    def _offer(
        self,
        heap: list[tuple[tuple[float, float], int, Kind]],
        kind: Kind,
        request: Amounts,
        constraint: Constraint,
        is_ps: bool,
    ) -> None:
        if kind.group not in self._allowed[constraint] or not fits(request, kind.room(is_ps)):
            return
        fills = self.fills(kind, request, 1, is_ps)
        if fills:
            self._pushed += 1
            heapq.heappush(heap, ((fills[0].lost, fills[0].waste), self._pushed, kind))


def _groups(
    nodes: Sequence[Node], constraints: Sequence[Constraint]
) -> tuple[list[int], dict[Constraint, frozenset[int]]]:
    """The group of each node, and by constraint the groups that allow such pods.

    Nodes of a group allow the same pods, and have the same resources, for example GPUs.
    """
    groups: dict[tuple[tuple[bool, ...], tuple[str, ...]], int] = {}
    numbers = []
    for node in nodes:
        answers = tuple([each.allows(node.name, node.labels, node.taints) for each in constraints])
        has = tuple(sorted([name for name, amount in node.allocatable.items() if amount]))
        numbers.append(groups.setdefault((answers, has), len(groups)))
    allowed = {
        each: frozenset(number for (answers, _), number in groups.items() if answers[index])
        for index, each in enumerate(constraints)
    }
    return numbers, allowed
