"""The room of nodes, and the best node for a pod without a look at all of them."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import le

from elasticdl.controller.core.cluster import Node
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.resources import Amounts, Units, add, count, fits, subtract

_PS_TRIED = 8
"""Most ps that are tried in a room beside workers to see how well these fill it."""
_IDLE_MAX = 8
"""Decisions after which a search that nothing asked for is dropped."""
_EXACT_NODES = 1_000
_SCALE_BITS = 6
"""Waste is a share of the cluster's size. That of a cluster with more nodes is rounded to this many bits."""
_MEMO_MAX = 200_000
"""Most rooms whose costs are remembered."""


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


@dataclass(frozen=True, slots=True)
class Fill:
    """Several equal pods on a node.

    Attributes:
        lost: places for workers that each costs, counted as if no worker stood there.
        waste: what stays empty then, as a share of the cluster.
    """

    pods: int
    lost: float
    waste: float
    needed: Amounts


@dataclass(slots=True)
class _Search:
    """Nodes with room for one more pod of a shape, best first: (lost, waste), name of the node.

    Entries that are no longer true are dropped when they come up.

    Attributes:
        scores: room without workers -> (lost, waste); None: it is too small.
        seen: how many of the nodes with more room it knows.
        idle: decisions for which it was not asked.
    """

    heap: list[tuple[tuple[float, float], str]]
    scores: dict[Amounts, tuple[float, float] | None]
    seen: int
    idle: int = 0


@dataclass(slots=True)
class _Ranking:
    """Bases by what several pods of a shape would cost there: the bound, a number, the base."""

    entries: list[tuple[tuple[float, float], int, Base]]
    seen: int
    idle: int = 0


class Rooms:
    """Room by name of the node.

    Args:
        usual: the requests of most workers and of most ps: room that does not hold one is lost for them.
        constraints: all that pods may have.
    """

    def __init__(
        self, nodes: Iterable[Node], units: Units, usual: tuple[Amounts, Amounts], constraints: Collection[Constraint]
    ) -> None:
        self._units = units
        self._nodes: dict[str, Node] = {}
        self._new: list[Base] = []
        """Bases in the order in which they came up."""
        self.free: dict[str, Amounts] = {}
        self.potential: dict[str, Amounts] = {}
        self.overbooked: set[str] = set()
        """Nodes that hold less than what is meant for them."""
        self.rebased: set[str] = set()
        """Nodes that have another base since the last look."""
        self.total = units.zero
        self._held: dict[str, Amounts] = {}
        """Only of nodes that hold some."""
        self._empty: dict[str, Amounts] = {}
        self._grown: list[str] = []
        """Nodes that got more room, or another base, for searches to look at when they are asked next."""
        for node in nodes:
            self._know(node)
        self.index(usual, constraints)

    def index(self, usual: tuple[Amounts, Amounts], constraints: Collection[Constraint]) -> None:
        """Begin with other usual pods, or other constraints."""
        self.worker, self.ps = usual
        self._constraints = tuple(constraints)
        self._allowed: dict[Constraint, frozenset[int]] = dict.fromkeys(self._constraints, frozenset())
        self._kinds: dict[Kind, int] = {}
        self._sizes: dict[int, Counter[Amounts]] = {}
        """Group -> what its nodes hold if they are empty -> how many of them."""
        self._groups = {name: self._join(node) for name, node in self._nodes.items()}
        self._bases: dict[tuple[int, Amounts, Amounts], Base] = {}
        self._new.clear()
        self._base = {name: self._enter(name) for name in self._nodes}
        self._begin_searches()

    def _begin_searches(self) -> None:
        self._scale = self._size()
        self._fills: dict[tuple[Amounts, Amounts], list[Fill]] = {}
        self._wastes: dict[Amounts, float] = {}
        self._searches: dict[tuple[Amounts, Constraint, bool], _Search] = {}
        self._rankings: dict[tuple[Amounts, Constraint, bool, int], _Ranking] = {}
        self._grown.clear()
        self._new.clear()
        self._numbered = 0

    # Nodes.

    def add(self, node: Node) -> None:
        """A node that holds nothing yet."""
        name = node.name
        self._know(node)
        self._groups[name] = self._join(node)
        self._base[name] = self._enter(name)
        self._grown.append(name)

    def remove(self, name: str) -> None:
        """A node that holds nothing any more."""
        self._leave(name)
        del self._base[name], self.free[name], self.potential[name], self._nodes[name]
        self._held.pop(name, None)
        self.overbooked.discard(name)
        self.rebased.add(name)
        amounts, group = self._empty.pop(name), self._groups.pop(name)
        self.total = subtract(self.total, amounts)
        sizes = self._sizes[group]
        sizes[amounts] -= 1
        if not sizes[amounts]:
            del sizes[amounts]
        if not sizes:
            del self._sizes[group]
            self._allowed = {each: groups - {group} for each, groups in self._allowed.items()}

    def resize(self) -> None:
        """Nodes have come or gone."""
        if self._size() != self._scale:
            self._begin_searches()

    def _size(self) -> Amounts:
        """The size of the cluster for comparisons of waste; in a large one, one node more changes nothing."""
        return self.total if len(self._nodes) <= _EXACT_NODES else _rounded(self.total)

    def _know(self, node: Node) -> None:
        self._nodes[node.name] = node
        amounts = self._units.amounts(node.allocatable)
        self.free[node.name] = self.potential[node.name] = self._empty[node.name] = amounts
        self.total = add(self.total, amounts)

    def _join(self, node: Node) -> int:
        """The group of a node."""
        kind = answers, _ = _kind(node, self._constraints)
        group = self._kinds.setdefault(kind, len(self._kinds))
        if group not in self._sizes:
            self._sizes[group] = Counter()
            for constraint, answer in zip(self._constraints, answers, strict=True):
                if answer:
                    self._allowed[constraint] |= {group}
        self._sizes[group][self._empty[node.name]] += 1
        return group

    def settle(self) -> None:
        """Between two decisions: searches learn of all changes, and those that nothing asks for are dropped."""
        grown = [node for node in set(self._grown) if node in self.free]
        by_size: dict[int, list[tuple[int, str]]] = {}
        for key, search in list(self._searches.items()):
            search.idle += 1
            if search.idle > _IDLE_MAX:
                del self._searches[key]
            else:
                if search.seen < len(self._grown):
                    self._offer(search, self._large(key[0], grown, by_size), *key)
                    self._shorten(search)
                search.seen = 0
        for wish, ranking in list(self._rankings.items()):
            ranking.idle += 1
            if ranking.idle > _IDLE_MAX:
                del self._rankings[wish]
            else:
                ranking.entries = [entry for entry in ranking.entries if entry[2].nodes]
                self._add(ranking, self._new[ranking.seen :], *wish)
                ranking.seen = 0
        self._grown.clear()
        self._new.clear()
        for memo in (self._fills, self._wastes):
            if len(memo) > _MEMO_MAX:
                memo.clear()

    # Changes.

    def take(self, node: str, request: Amounts) -> None:
        """A pod that is no worker takes room."""
        self.take_for_worker(node, request)
        self.lose(node, request)

    def lose(self, node: str, request: Amounts) -> None:
        """A node has less room for workers, however many of them stand there."""
        self.potential[node] = subtract(self.potential[node], request)
        self._changed(node)

    def give(self, node: str, request: Amounts) -> None:
        """A pod that is no worker gives its room."""
        self.potential[node] = add(self.potential[node], request)
        self.give_from_worker(node, request)
        self._changed(node)

    def take_for_worker(self, node: str, request: Amounts) -> None:
        """A worker takes room."""
        self.free[node] = free = subtract(self.free[node], request)
        if min(free, default=0) < 0:
            self.overbooked.add(node)

    def give_from_worker(self, node: str, request: Amounts) -> None:
        """A worker gives its room."""
        self.free[node] = free = add(self.free[node], request)
        self._grown.append(node)
        if node in self.overbooked and min(free, default=0) >= 0:
            self.overbooked.discard(node)

    def hold(self, node: str, request: Amounts, times: int) -> None:
        """A ps that leaves holds its room until its groups have moved."""
        if any(request):
            self._held[node] = held = add(self._held.get(node, self._units.zero), request, times)
            if not any(held):
                del self._held[node]
            self._changed(node)

    def _changed(self, node: str) -> None:
        self._leave(node)
        self._base[node] = self._enter(node)
        self._grown.append(node)

    def _leave(self, node: str) -> None:
        base = self._base[node]
        base.nodes.discard(node)
        base.order = None
        if not base.nodes:
            del self._bases[base.group, base.potential, base.held]

    def _enter(self, node: str) -> Base:
        held = self._held.get(node, self._units.zero)
        key = group, potential, _ = self._groups[node], self.potential[node], held
        base = self._bases.get(key)
        if base is None:
            base = self._bases[key] = Base(group, potential, held, subtract(potential, held), {node})
            self._new.append(base)
        else:
            base.nodes.add(node)
            base.order = None
        self.rebased.add(node)
        return base

    # Questions.

    def base(self, node: str) -> Base:
        """The base of a node now."""
        return self._base[node]

    def room(self, node: str, is_ps: bool = False) -> Amounts:
        """Room for a pod if no worker leaves."""
        return subtract(self.free[node], self._held[node]) if is_ps and node in self._held else self.free[node]

    def allows(self, constraint: Constraint, node: str) -> bool:
        """Whether a node allows such pods."""
        return self._groups[node] in self._allowed[constraint]

    def groups(self, constraint: Constraint) -> frozenset[int]:
        """The groups of nodes that allow such pods."""
        return self._allowed[constraint]

    def large_enough(self, request: Amounts, constraint: Constraint) -> set[int]:
        """Nodes that would hold such a pod if they were empty, by the groups of their labels."""
        return {
            group
            for group in self._allowed[constraint]
            if any(fits(request, amounts) for amounts in self._sizes[group])
        }

    def fills(self, potential: Amounts, request: Amounts, most: int) -> list[Fill]:
        """1, 2 and more equal pods on a node with this room without workers, as far as they fit."""
        found = self._fills.setdefault((potential, request), [])
        most = min(most, count(request, potential))
        if len(found) < most:
            before = count(self.worker, potential)
            for pods in range(len(found) + 1, most + 1):
                needed = add(subtract(request, request), request, pods)
                after = subtract(potential, needed)
                lost = (before - count(self.worker, after)) / pods
                found.append(Fill(pods, lost, self._waste(after), needed))
        return found[:most]

    def _waste(self, room: Amounts) -> float:
        """What stays empty in a room that workers and ps fill as well as they can, as a share of the cluster."""
        if room in self._wastes:
            return self._wastes[room]
        # Asked for every new room: as `count`, `add` and `share` would say, in one loop.
        worker, scale, least, left = self.worker, self._scale, 1.0, room
        needed = [(place, amount) for place, amount in enumerate(worker) if amount > 0]
        for _ in range(min(count(self.ps, room), _PS_TRIED) + 1):
            workers = max(0, min([left[place] // amount for place, amount in needed], default=0))
            rest = [
                (have - workers * amount) / whole
                for have, amount, whole in zip(left, worker, scale, strict=True)
                if whole > 0
            ]
            least = min(least, max(rest, default=0.0))
            left = subtract(left, self.ps)
        self._wastes[room] = least
        return least

    def best(self, request: Amounts, constraint: Constraint, is_ps: bool = False) -> str | None:
        """The free node where one more pod costs the fewest places for workers; None: no node has room."""
        key = request, constraint, is_ps
        search = self._searches.get(key)
        if search is None:
            search = self._searches[key] = _Search([], {}, len(self._grown))
            self._offer(search, self._nodes, *key)
        elif search.seen < len(self._grown):
            self._catch_up(search, *key)
        search.idle, heap, scores, bases, free = 0, search.heap, search.scores, self._base, self.free
        while heap:
            score, node = heap[0]
            if (base := bases.get(node)) is not None:
                room = self.room(node, True) if is_ps else free[node]
                if (all(map(le, request, room)) or fits(request, room)) and scores.get(base.room(is_ps)) == score:
                    return node
            heapq.heappop(heap)
        return None

    def _catch_up(self, search: _Search, request: Amounts, constraint: Constraint, is_ps: bool) -> None:
        self._offer(search, set(self._grown[search.seen :]), request, constraint, is_ps)
        search.seen = len(self._grown)
        self._shorten(search)

    def _large(self, request: Amounts, nodes: Sequence[str], by_size: dict[int, list[tuple[int, str]]]) -> list[str]:
        """The nodes with enough of the resource that such a pod needs most: few have that.

        Args:
            by_size: resource -> the nodes by their room for it, completed here.
        """
        shares = [amount / max(whole, 1) for amount, whole in zip(request, self.total, strict=True)]
        most = max(range(len(shares)), key=shares.__getitem__)
        if (sizes := by_size.get(most)) is None:
            sizes = by_size[most] = sorted([(self.free[node][most], node) for node in nodes])
        start = bisect_left(sizes, (request[most], "")) if request[most] else 0
        return [node for _, node in sizes[start:]]

    def _shorten(self, search: _Search) -> None:
        if len(search.heap) > 4 * len(self._nodes):
            search.heap = list(set(search.heap))
            heapq.heapify(search.heap)

    def _offer(
        self, search: _Search, nodes: Iterable[str], request: Amounts, constraint: Constraint, is_ps: bool
    ) -> None:
        allowed, heap, scores = self._allowed[constraint], search.heap, search.scores
        get, frees, push, held = self._base.get, self.free, heapq.heappush, self._held if is_ps else ()
        for node in nodes:
            if (base := get(node)) is None or base.group not in allowed:
                continue
            room = self.room(node, True) if node in held else frees[node]
            # Nearly all are too small. The first test is in C, and called most often.
            if not all(map(le, request, room)) and (min(room) >= 0 or not fits(request, room)):
                continue
            potential = base.for_ps if is_ps else base.potential
            try:
                score = scores[potential]
            except KeyError:
                fills = self.fills(potential, request, 1)
                score = scores[potential] = (fills[0].lost, fills[0].waste) if fills else None
            if score:
                push(heap, (score, node))

    def ranked(
        self, request: Amounts, constraint: Constraint, is_ps: bool, pods: int
    ) -> Iterator[tuple[tuple[float, float], Base]]:
        """Bases that could hold some of several pods, by the least (lost, waste) that each could cost there."""
        key = request, constraint, is_ps, pods
        ranking = self._rankings.get(key)
        if ranking is None:
            ranking = self._rankings[key] = _Ranking([], len(self._new))
            self._add(ranking, self._bases.values(), *key)
        elif ranking.seen < len(self._new):
            self._add(ranking, self._new[ranking.seen :], *key)
            ranking.seen = len(self._new)
        ranking.idle = 0
        for bound, _, base in ranking.entries:
            if base.nodes:
                yield bound, base

    def _add(
        self,
        ranking: _Ranking,
        bases: Iterable[Base],
        request: Amounts,
        constraint: Constraint,
        is_ps: bool,
        pods: int,
    ) -> None:
        allowed = self._allowed[constraint]
        for base in bases:
            if base.nodes and base.group in allowed and (fills := self.fills(base.room(is_ps), request, pods)):
                self._numbered += 1
                insort(ranking.entries, (min((fill.lost, fill.waste) for fill in fills), self._numbered, base))


Kind = tuple[tuple[bool, ...], tuple[str, ...]]
"""Nodes of a kind allow the same pods, and have the same resources, for example GPUs."""


def _kind(node: Node, constraints: Sequence[Constraint]) -> Kind:
    """Whether a node allows pods by their constraints, and the names of what it has."""
    answers = tuple([each.allows(node.name, node.labels, node.taints) for each in constraints])
    return answers, tuple(sorted([name for name, amount in node.allocatable.items() if amount]))


def _rounded(total: Amounts) -> Amounts:
    shifts = [max(0, amount.bit_length() - _SCALE_BITS) for amount in total]
    return tuple([amount >> shift << shift for amount, shift in zip(total, shifts, strict=True)])
