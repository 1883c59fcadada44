"""Amounts of resources: CPU in millicores, memory in MiB, everything else (GPUs) in pieces. All are counted alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import add as _add
from operator import le
from operator import sub as _subtract

Resources = Mapping[str, int]
"""Name of a resource -> amount. A missing name means 0."""

Shape = tuple[tuple[str, int], ...]
"""A request as a key."""

Amounts = tuple[int, ...]
"""Resources in the fixed order of ``Units``."""


class Units:
    """The order in which amounts have the resources of a cluster."""

    def __init__(self, known: Iterable[Resources]) -> None:
        names: dict[str, None] = {}
        seen: set[int] = set()
        for resources in known:
            if id(resources) not in seen:
                seen.add(id(resources))
                names.update(dict.fromkeys(resources))
        self._names = sorted(names)
        self.names = frozenset(names)
        self.zero: Amounts = (0,) * len(self._names)

    def amounts(self, resources: Resources) -> Amounts:
        """Resources in this order."""
        return tuple([resources.get(name, 0) for name in self._names])


def shape_of(request: Resources) -> Shape:
    """The key of a request."""
    return tuple(sorted(request.items()))


def plus(left: Resources, right: Resources, times: int = 1) -> dict[str, int]:
    """The sum of two amounts, the second one multiplied."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + times * amount
    return total


def has_room(request: Resources, room: Resources) -> bool:
    """Whether a request fits into the room of a node."""
    return all(amount <= room.get(name, 0) for name, amount in request.items())


def add(left: Amounts, right: Amounts, times: int = 1) -> Amounts:
    """The sum of two amounts, the second one multiplied."""
    if times == 1:
        return tuple(map(_add, left, right))
    return tuple([one + times * other for one, other in zip(left, right, strict=True)])


def subtract(left: Amounts, right: Amounts) -> Amounts:
    """The difference of two amounts."""
    return tuple(map(_subtract, left, right))


def fits(request: Amounts, room: Amounts) -> bool:
    """Whether a request fits into the room of a node. What is not requested does not matter."""
    if all(map(le, request, room)):  # In C, and called most often.
        return True
    return min(room) < 0 and all(not amount or amount <= left for amount, left in zip(request, room, strict=True))


def count(request: Amounts, room: Amounts) -> int:
    """How many pods with this request fit into the room; 0 where the room is negative, and for an empty request."""
    most = -1
    for amount, left in zip(request, room, strict=True):
        if amount > 0:
            whole = left // amount
            if whole <= 0:
                return 0
            if most < 0 or whole < most:
                most = whole
    return max(0, most)


def share(request: Amounts, total: Amounts) -> float:
    """The dominant share: the largest fraction of one resource of the cluster that the request takes."""
    return max([amount / whole for amount, whole in zip(request, total, strict=True) if whole > 0], default=0.0)
