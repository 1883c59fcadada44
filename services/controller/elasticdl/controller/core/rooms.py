"""The room of nodes, and the best node for a pod without a look at all of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from elasticdl.controller.core.cluster import Node
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.resources import Amounts, Units, add, count, fits, subtract
from elasticdl.controller.core.searches import Base, Fill, Score, Search

_PS_TRIED = 8
"""Most ps that are tried in a room beside workers to see how well these fill it."""
_IDLE_MAX = 8
"""Decisions after which a search that nothing asked for is dropped."""
_EXACT_NODES = 1_000
_SCALE_BITS = 6
"""Waste is a share of the cluster's size. That of a cluster with more nodes is rounded to this many bits."""
_INSERTED_MAX = 8
"""Most bases that are entered one by one; a list with more new ones is sorted."""
_MEMO_MAX = 200_000
"""Most rooms whose costs are remembered."""


@dataclass(slots=True)
class _Ranking:
    """Bases by what several pods of a shape would cost there: the least (lost, waste), a number, the base."""

    entries: list[tuple[float, float, int, Base]]
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
        self._limits = [
            (number, amount, whole)
            for number, (amount, whole) in enumerate(zip(self.worker, self._scale, strict=True))
            if whole > 0
        ]
        """Resources by number, what a usual worker takes, and the cluster's size."""
        self._fills: dict[tuple[Amounts, Amounts], list[Fill]] = {}
        self._places: dict[Amounts, int] = {}
        self._wastes: dict[Amounts, float] = {}
        self._rests: dict[Amounts, float] = {}
        self._searches: dict[tuple[Amounts, Constraint, bool], Search] = {}
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
                    search.offer(self._large(key[0], grown, by_size))
                search.seen = 0
                search.clean()
        for wish, ranking in list(self._rankings.items()):
            ranking.idle += 1
            if ranking.idle > _IDLE_MAX:
                del self._rankings[wish]
            else:
                ranking.entries = [entry for entry in ranking.entries if entry[3].nodes]
                self._add(ranking, self._new[ranking.seen :], *wish)
                ranking.seen = 0
        self._grown.clear()
        self._new.clear()
        for memo in (self._fills, self._places, self._wastes, self._rests):
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

    def take_for_worker(self, node: str, request: Amounts, workers: int = 1) -> None:
        """Workers take room."""
        self.free[node] = free = add(self.free[node], request, -workers)
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
        self._grown.append(node)
        self.rebased.add(node)
        return base

    # Questions.

    def base(self, node: str) -> Base:
        """The base of a node now."""
        return self._base[node]

    def room(self, node: str, is_ps: bool = False) -> Amounts:
        """Room for a pod if no worker leaves."""
        return subtract(self.free[node], self._held[node]) if is_ps and node in self._held else self.free[node]

    def room_for_ps(self, node: str) -> Amounts | None:
        """Room without what ps hold until their groups have moved; None: the node is gone."""
        return subtract(self.free[node], self._held[node]) if node in self._held else self.free.get(node)

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
        if len(found) < most:
            most = min(most, count(request, potential))
            for pods in range(len(found) + 1, most + 1):
                needed = request if pods == 1 else add(self._units.zero, request, pods)
                after = subtract(potential, needed)
                lost = (self.places(potential) - self.places(after)) / pods
                found.append(Fill(pods, lost, self._waste(after), needed))
        return found[:most]

    def places(self, room: Amounts) -> int:
        """How many usual workers a room holds."""
        if (found := self._places.get(room)) is None:
            found = self._places[room] = count(self.worker, room)
        return found

    def _waste(self, room: Amounts) -> float:
        """What stays empty in a room that workers and ps fill as well as they can, as a share of the cluster."""
        if (found := self._wastes.get(room)) is None:
            found, left = 1.0, room
            for _ in range(min(count(self.ps, room), _PS_TRIED) + 1):
                found = min(found, self._rest(left))
                left = subtract(left, self.ps)
            self._wastes[room] = found
        return found

    def _rest(self, room: Amounts) -> float:
        """What stays empty in a room that workers fill as well as they can, as a share of the cluster."""
        if (found := self._rests.get(room)) is None:
            workers = self.places(room)
            rest = [(room[each] - workers * amount) / whole for each, amount, whole in self._limits]
            self._rests[room] = found = max(rest, default=0.0)
        return found

    def best(self, request: Amounts, constraint: Constraint, is_ps: bool = False) -> str | None:
        """The free node where one more pod costs the fewest places for workers; None: no node has room."""
        return self._asked(request, constraint, is_ps).best()

    def take_best(self, request: Amounts, constraint: Constraint, workers: int) -> list[str]:
        """Take room for equal workers, one after the other on the best node, while there is some; returns the nodes."""
        search, nodes = self._asked(request, constraint, False), list[str]()
        while len(nodes) < workers and (node := search.best()) is not None:
            more = min(max(1, count(request, self.free[node])), workers - len(nodes))
            self.take_for_worker(node, request, more)
            nodes += [node] * more
        return nodes

    def _asked(self, request: Amounts, constraint: Constraint, is_ps: bool) -> Search:
        key = request, constraint, is_ps
        search = self._searches.get(key)
        if search is None:
            search = self._searches[key] = self._search(*key)
            search.offer(self._nodes)
        elif search.seen < len(self._grown):
            search.offer(set(self._grown[search.seen :]))
        search.seen, search.idle = len(self._grown), 0
        return search

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

    def _search(self, request: Amounts, constraint: Constraint, is_ps: bool) -> Search:
        scores: dict[Amounts, Score | None] = {}

        def score(base: Base) -> Score | None:
            if base.group not in self._allowed[constraint]:
                return None
            room = base.room(is_ps)
            if room not in scores:
                fills = self.fills(room, request, 1)
                scores[room] = (fills[0].lost, fills[0].waste) if fills else None
            return scores[room]

        return Search(request, self.room_for_ps if is_ps else self.free.get, self._base, score)

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
        for lost, waste, _, base in ranking.entries:
            if base.nodes:
                yield (lost, waste), base

    def _add(
        self,
        ranking: _Ranking,
        bases: Iterable[Base],
        request: Amounts,
        constraint: Constraint,
        is_ps: bool,
        pods: int,
    ) -> None:
        allowed, found = self._allowed[constraint], []
        for base in bases:
            if base.nodes and base.group in allowed and (fills := self.fills(base.room(is_ps), request, pods)):
                self._numbered += 1
                lost, waste = min([(fill.lost, fill.waste) for fill in fills])
                found.append((lost, waste, self._numbered, base))
        if len(found) > _INSERTED_MAX:
            ranking.entries += found
            ranking.entries.sort()
        else:
            for entry in found:
                insort(ranking.entries, entry)


class Holds:
    """Which ps that are about to leave hold room until their groups have moved to the other ps of their job.

    Those of a job that leaves as a whole hold none: they move nothing.
    """

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._staying: Counter[str] = Counter()
        """Job -> its master and ps that stay."""
        self._leaving: dict[str, Counter[tuple[str, Amounts]]] = {}
        """Job -> node and request -> its ps there that are about to leave."""

    def leave(self, job: str, node: str, request: Amounts, times: int) -> None:
        """A ps is about to leave (1), or not any more (-1)."""
        leaving = self._leaving.setdefault(job, Counter())
        leaving[node, request] += times
        if not leaving[node, request]:
            del leaving[node, request]
        if not leaving:
            del self._leaving[job]
        if job in self._staying:
            self._rooms.hold(node, request, times)

    def stay(self, job: str, times: int) -> None:
        """A master or ps comes (1) or goes (-1)."""
        had = self._staying[job]
        self._staying[job] = has = had + times
        if not has:
            del self._staying[job]
        if job in self._leaving and bool(has) != bool(had):
            for (node, request), pods in self._leaving[job].items():
                self._rooms.hold(node, request, times * pods)


Kind = tuple[tuple[bool, ...], tuple[str, ...]]
"""Nodes of a kind allow the same pods, and have the same resources, for example GPUs."""


def _kind(node: Node, constraints: Sequence[Constraint]) -> Kind:
    """Whether a node allows pods by their constraints, and the names of what it has."""
    answers = tuple([each.allows(node.name, node.labels, node.taints) for each in constraints])
    return answers, tuple(sorted([name for name, amount in node.allocatable.items() if amount]))


def _rounded(total: Amounts) -> Amounts:
    shifts = [max(0, amount.bit_length() - _SCALE_BITS) for amount in total]
    return tuple([amount >> shift << shift for amount, shift in zip(total, shifts, strict=True)])
