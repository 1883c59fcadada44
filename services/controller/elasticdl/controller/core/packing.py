"""Which nodes take pods, and which workers leave for them: so that as few workers as possible are lost."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.plan import Member, Plan, waste
from elasticdl.controller.core.resources import Resources, Shape, count, fits, plus, shape_of

Yields = Callable[[str], bool]
"""Whether a job gives workers above its minimum."""
Put = Callable[[str], None]
"""Put one pod on a node."""
Score = tuple[float, float, float, int]


@dataclass(frozen=True, slots=True)
class Offer:
    """A node that takes some pods once its victims have left."""

    pods: int
    victims: tuple[Member, ...]
    score: Score
    """Places for workers that are lost for each pod, victims for each pod, waste, number of the node."""


def gives_nothing(job: str) -> bool:
    """No job gives workers."""
    del job
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Several equal pods that need nodes."""

    request: Resources
    pods: int
    is_ps: bool = False


def place(plan: Plan, wish: Wish, yields: Yields, put: Put) -> bool:
    """Place all of several equal pods, or none.

    A place for a worker that is lost counts whether a worker stands there or not. Two workers may have to leave for
    three ps, where one worker would leave for each ps elsewhere.
    """
    mark, left = plan.mark(), wish
    heap = [(found.score, number) for number in range(len(plan.nodes)) if (found := _offer(plan, number, wish, yields))]
    heapq.heapify(heap)
    while left.pods and heap:
        score, number = heapq.heappop(heap)
        found = _offer(plan, number, left, yields)
        if found is None:
            continue
        if found.score > score:  # It is worse by now.
            heapq.heappush(heap, (found.score, number))
            continue
        for victim in found.victims:
            plan.drain(victim)
        for _ in range(found.pods):
            put(plan.nodes[number])
        left = replace(left, pods=left.pods - found.pods)
        if left.pods and (rest := _offer(plan, number, left, yields)):
            heapq.heappush(heap, (rest.score, number))
    if left.pods:
        plan.undo(mark)
    return not left.pods


def start_all(plan: Plan, job: str, role: Role, pods: int, yields: Yields) -> bool:
    """Start several pods of a job, or none."""
    if pods <= 0:
        return True
    wish = Wish(request=plan.jobs[job].group(role).request, pods=pods, is_ps=role is Role.PS)
    return place(plan, wish, yields, lambda node: _start(plan, job, role, node))


def _start(plan: Plan, job: str, role: Role, node: str) -> None:
    plan.start(job, role, node)


def _offer(plan: Plan, number: int, wish: Wish, yields: Yields) -> Offer | None:
    """The best number of pods for a node."""
    node, request = plan.nodes[number], wish.request
    room, potential = plan.room(node, wish.is_ps), plan.potential(node, wish.is_ps)
    most = min(wish.pods, count(request, potential))
    victims = [] if fits(_times(request, most), room) else _victims(plan, node, yields)
    before, leaving, best = count(plan.filler, potential), 0, None
    for pods in range(1, most + 1):
        needed = _times(request, pods)
        while not fits(needed, room) and leaving < len(victims):
            room = plus(room, plan.request(victims[leaving]))
            leaving += 1
        if not fits(needed, room):
            break
        after = plus(potential, request, -pods)
        lost = before - count(plan.filler, after)
        score = (lost / pods, leaving / pods, waste(plan, after), number)
        if best is None or score < best.score:
            best = Offer(pods, tuple(victims[:leaving]), score)
    return best


def _victims(plan: Plan, node: str, yields: Yields) -> list[Member]:
    """Workers of a node that may leave: those of the job with the largest share first, its newest first."""
    left: Counter[str] = Counter()
    victims = []
    owners = {member.job for member in plan.workers_on[node].values()}
    shares = {job: plan.share(job) for job in owners if plan.surplus(job) and yields(job)}
    for member in sorted(
        (member for member in plan.workers_on[node].values() if member.job in shares),
        key=lambda member: (
            member.pod not in plan.starts,
            -shares[member.job],
            member.job,
            -len(member.pod),
            member.pod,
        ),
    ):
        left[member.job] += 1
        if left[member.job] <= plan.surplus(member.job):
            victims.append(member)
    return victims


def _times(request: Resources, pods: int) -> Resources:
    return {name: amount * pods for name, amount in request.items()}


class FreeRoom:
    """Nodes with room for one more pod of a shape, best first. Valid while room only shrinks."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._heaps: dict[tuple[Shape, bool], list[tuple[Score, int]]] = {}

    def node(self, request: Resources, is_ps: bool = False) -> str | None:
        """The node where the pod costs the fewest places for workers; None: no node has room."""
        key = shape_of(request), is_ps
        wish = Wish(request=request, pods=1, is_ps=is_ps)
        if key not in self._heaps:
            found = [_offer(self._plan, number, wish, gives_nothing) for number in range(len(self._plan.nodes))]
            self._heaps[key] = [(each.score, each.score[3]) for each in found if each]
            heapq.heapify(self._heaps[key])
        heap = self._heaps[key]
        while heap:
            score, number = heap[0]
            offer = _offer(self._plan, number, wish, gives_nothing)
            if offer is None:
                heapq.heappop(heap)
            elif offer.score > score:
                heapq.heapreplace(heap, (offer.score, number))
            else:
                return self._plan.nodes[number]
        return None

    def changed(self) -> None:
        """Forget everything, because room has become free."""
        self._heaps.clear()
