"""Which nodes take pods, and which workers leave for them: so that as few workers as possible are lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.placement import Constraint
from elasticdl.controller.core.plan import Member, Plan
from elasticdl.controller.core.resources import Amounts, add, count, fits
from elasticdl.controller.core.rooms import Fill, Kind

Yields = Callable[[str], bool]
"""Whether a job gives workers above its minimum."""
Put = Callable[[int], None]
"""Put one pod on a node."""
Score = tuple[float, float, float, int]
"""Places for workers that are lost for each pod, victims for each pod, waste, number of the node."""

_KINDS_COMPARED = 1000
"""Kinds of nodes that are compared with each other. In large clusters, the first ones that have a place decide."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A node that takes some pods once its victims have left."""

    pods: int
    victims: tuple[Member, ...]
    score: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Several equal pods that need nodes; ``closed``: groups of nodes that are not for them."""

    request: Amounts
    constraint: Constraint
    pods: int
    is_ps: bool = False
    closed: frozenset[int] = frozenset()


def place(plan: Plan, wish: Wish, yields: Yields, put: Put) -> bool:
    """Place all of several equal pods, or none.

    A place for a worker that is lost counts whether a worker stands there or not. Two workers may have to leave for
    three ps, where one worker would leave for each ps elsewhere.
    """
    if wish.pods == 1 and not wish.closed and (node := _as_good_as_any(plan, wish)) is not None:
        put(node)
        return True
    mark, left = plan.mark(), wish
    while left.pods:
        found = _best(plan, left, yields)
        if found is None:
            plan.undo(mark)
            return False
        for victim in found.victims:
            plan.drain(victim)
        for _ in range(found.pods):
            put(found.score[3])
        left = replace(left, pods=left.pods - found.pods)
    return True


def _as_good_as_any(plan: Plan, wish: Wish) -> int | None:
    """A free node where one pod costs no more places for workers than it must; so no other one can be better."""
    node = plan.rooms.best(wish.request, wish.constraint, wish.is_ps)
    if node is None:
        return None
    (fill,) = plan.rooms.fills(plan.rooms.kind(node), wish.request, 1, wish.is_ps)
    return node if fill.lost <= count(plan.rooms.worker, wish.request) else None


def _best(plan: Plan, wish: Wish, yields: Yields) -> Offer | None:
    """The best node for some of the pods. Kinds of nodes are looked at by the best that they could offer."""
    kinds = [kind for kind in plan.rooms.kinds(wish.constraint) if kind.group not in wish.closed]
    for start in range(0, len(kinds), _KINDS_COMPARED):
        if (best := _best_of(plan, kinds[start : start + _KINDS_COMPARED], wish, yields)) is not None:
            return best
    return None


def _best_of(plan: Plan, kinds: list[Kind], wish: Wish, yields: Yields) -> Offer | None:
    bounds: list[tuple[Score, Kind]] = []
    for kind in kinds:
        if fills := plan.rooms.fills(kind, wish.request, wish.pods, wish.is_ps):
            least = min([(fill.lost, 0.0 if fill.is_free else 1 / fill.pods, fill.waste) for fill in fills])
            bounds.append(((*least, plan.rooms.first(kind)), kind))
    bounds.sort(key=lambda entry: entry[0])
    best: Offer | None = None
    for bound, kind in bounds:
        if best is not None and best.score <= bound:
            break
        fills = plan.rooms.fills(kind, wish.request, wish.pods, wish.is_ps)
        for node in (bound[3],) if bound[1] == 0.0 else plan.rooms.nodes(kind):
            if best is not None and best.score <= (*bound[:3], node):
                break
            offer = _offer(plan, node, fills, kind.room(wish.is_ps), yields)
            if offer is not None and (best is None or offer.score < best.score):
                best = offer
    return best


def _offer(plan: Plan, node: int, fills: list[Fill], room: Amounts, yields: Yields) -> Offer | None:
    """The best number of pods for a node."""
    victims = [] if fills[-1].is_free else _victims(plan, node, yields)
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
    plan: Plan, job: str, role: Role, pods: int, yields: Yields, closed: frozenset[int] = frozenset()
) -> bool:
    """Start several pods of a job, or none."""
    if pods <= 0:
        return True
    wish = Wish(
        request=plan.requests[job, role],
        constraint=plan.jobs[job].group(role).constraint,
        pods=pods,
        is_ps=role is Role.PS,
        closed=closed,
    )

    def put(node: int) -> None:
        plan.start(job, role, node)

    return place(plan, wish, yields, put)


def _victims(plan: Plan, node: int, yields: Yields) -> list[Member]:
    """Workers of a node that may leave: those of the job with the largest share first, its newest first."""
    left: Counter[str] = Counter()
    victims = []
    owners = {member.job for member in plan.workers_on[node].values()}
    shares = {job: plan.share(job) for job in owners if plan.surplus(job) and yields(job)}
    if not shares:
        return []
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
