"""Which nodes take pods, and which workers leave for them: so that as few workers as possible are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from elasticdl.controller.core.cluster import Role, Start
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.resources import Amounts, add, fits
from elasticdl.controller.core.rooms import Rooms
from elasticdl.controller.core.searches import Fill

Yields = Callable[[str], bool]
"""Whether a job gives workers above its minimum."""
Put = Callable[[str], None]
"""Put one pod on a node."""
Score = tuple[float, float, float, str]
"""Places for workers that are lost for each pod, victims for each pod, waste, the node."""


class Offer(NamedTuple):
    """A node that takes some pods once its victims have left."""

    pods: int
    victims: tuple[Start, ...]
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Several equal pods that need nodes.

    Attributes:
        closed: groups of nodes that are not for them.
        giver: the only job whose workers may leave for them; empty: any that yields.
    """

    request: Amounts
    constraint: Constraint
    pods: int
    is_ps: bool = False
    closed: frozenset[int] = frozenset()
    giver: str = ""


class _Shares(dict[str, float | None]):
    """Shares of the jobs that give workers above their minimum, while the plan is the same; None: it gives none."""

    def __init__(self, plan: Plan, yields: Yields) -> None:
        self._plan, self._yields = plan, yields

    def __missing__(self, job: str) -> float | None:
        plan = self._plan
        self[job] = found = plan.share(job) if plan.surplus(job) and self._yields(job) else None
        return found


def place(plan: Plan, wish: Wish, yields: Yields, put: Put) -> bool:
    """Place all of several equal pods, or none.

    A place for a worker that is lost counts whether a worker stands there or not. Two workers may have to leave for
    three ps, where one worker would leave for each ps elsewhere.
    """
    if plan.rooms.groups(wish.constraint) <= wish.closed:
        return False
    if wish.pods == 1 and not wish.closed:
        offer = _best_for_one(plan, wish, yields)
        if offer is None:
            return False
        _accept(plan, offer, put)
        return True
    mark, left = plan.mark(), wish
    while left.pods:
        found = _best(plan, left, yields, None, 0.0)
        if found is None:
            plan.undo(mark)
            return False
        _accept(plan, found, put)
        left = replace(left, pods=left.pods - found.pods)
    return True


def _accept(plan: Plan, offer: Offer, put: Put) -> None:
    for victim in offer.victims:
        plan.drain(victim)
    for _ in range(offer.pods):
        put(offer.score[3])


def free_node(plan: Plan, job: str, role: Role) -> str | None:
    """A free node where one more pod costs no more than it must: it is as good as any."""
    rooms, request, is_ps = plan.rooms, plan.requests[job][role], role is Role.PS
    node = rooms.best(request, plan.jobs[job].group(role).constraint, is_ps)
    if node is not None and _fill(rooms, node, request, is_ps).lost <= rooms.places(request):
        return node
    return None


def _fill(rooms: Rooms, node: str, request: Amounts, is_ps: bool) -> Fill:
    (fill,) = rooms.fills(rooms.base(node).room(is_ps), request, 1)
    return fill


def _best_for_one(plan: Plan, wish: Wish, yields: Yields) -> Offer | None:
    """The best node for one pod."""
    rooms, best = plan.rooms, None
    node = rooms.best(wish.request, wish.constraint, wish.is_ps)
    if node is not None:
        fill = _fill(rooms, node, wish.request, wish.is_ps)
        best = Offer(1, (), (fill.lost, 0.0, fill.waste, node))
        if fill.lost <= rooms.places(wish.request):
            return best
    if wish.giver:
        shares = _Shares(plan, yields)
        for node in sorted({member.node for member in plan.members[wish.giver][Role.WORKER].values()}):
            if rooms.allows(wish.constraint, node):
                fills = rooms.fills(rooms.base(node).room(wish.is_ps), wish.request, 1)
                best = _better(best, _offer(plan, node, fills, rooms.room(node, wish.is_ps), shares))
        return best
    return _best(plan, wish, yields, best, 1.0)


def _best(plan: Plan, wish: Wish, yields: Yields, best: Offer | None, victims: float) -> Offer | None:
    """The best node for some of the pods. Bases are looked at by the best that they could offer.

    Args:
        best: an offer that is known.
        victims: the fewest that have to leave for each pod.
    """
    rooms, may_leave = plan.rooms, bool(plan.with_surplus)
    if victims and not may_leave:
        return best
    shares = _Shares(plan, yields)
    for bound, base in rooms.ranked(wish.request, wish.constraint, wish.is_ps, wish.pods):
        least, waste = bound
        if best is not None and best.score <= (least, victims, waste, ""):
            break
        if base.group in wish.closed:
            continue
        fills = rooms.fills(base.room(wish.is_ps), wish.request, wish.pods)
        for node in base.in_order():
            if best is not None and best.score <= (least, victims, waste, node):
                break
            room = rooms.room(node, wish.is_ps)
            if not fits(wish.request, room) and (
                not may_leave or (best is not None and best.score <= (least, 1 / wish.pods, waste, node))
            ):
                continue
            best = _better(best, _offer(plan, node, fills, room, shares))
    return best


def _better(best: Offer | None, other: Offer | None) -> Offer | None:
    return other if other is not None and (best is None or other.score < best.score) else best


def _offer(plan: Plan, node: str, fills: list[Fill], room: Amounts, shares: _Shares) -> Offer | None:
    """The best number of pods for a node."""
    if not fills:
        return None
    victims = [] if fits(fills[-1].needed, room) else _victims(plan, node, shares)
    leaving, best = 0, None
    for fill in fills:
        while not fits(fill.needed, room) and leaving < len(victims):
            room = add(room, plan.request(victims[leaving]))
            leaving += 1
        if not fits(fill.needed, room):
            break
        score = (fill.lost, leaving / fill.pods, fill.waste, node)
        if best is None or score < best.score:
            best = Offer(fill.pods, tuple(victims[:leaving]), score)
    return best


def start_all(
    plan: Plan,
    job: str,
    role: Role,
    pods: int,
    yields: Yields,
    *,
    closed: frozenset[int] = frozenset(),
    giver: str = "",
) -> bool:
    """Start several pods of a job, or none; ``closed`` and ``giver`` as in ``Wish``."""
    if pods <= 0:
        return True
    if pods == 1 and not closed and (node := free_node(plan, job, role)) is not None:
        plan.start(job, role, node)
        return True
    wish = Wish(
        request=plan.requests[job][role],
        constraint=plan.jobs[job].group(role).constraint,
        pods=pods,
        is_ps=role is Role.PS,
        closed=closed,
        giver=giver,
    )

    def put(node: str) -> None:
        plan.start(job, role, node)

    return place(plan, wish, yields, put)


def _victims(plan: Plan, node: str, shares: _Shares) -> list[Start]:
    """Workers of a node that may leave: those of the job with the largest share first, its newest first."""
    order = [
        (member.pod not in plan.starts, -share, member.job, -len(member.pod), member.pod, member)
        for member in plan.workers_on[node].values()
        if (share := shares[member.job]) is not None
    ]
    left: Counter[str] = Counter()
    victims = []
    for *_, member in sorted(order):
        left[member.job] += 1
        if left[member.job] <= plan.surplus(member.job):
            victims.append(member)
    return victims
