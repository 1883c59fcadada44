"""Amounts of resources: CPU in millicores, memory in MiB, everything else (GPUs) in pieces. All are counted alike."""

from __future__ import annotations

from collections.abc import Mapping

Resources = Mapping[str, int]
"""Name of a resource -> amount. A missing name means 0."""

Shape = tuple[tuple[str, int], ...]
"""A request as a key."""


def shape_of(request: Resources) -> Shape:
    """The key of a request."""
    return tuple(sorted(request.items()))


def fits(request: Resources, room: Resources) -> bool:
    """Whether a request fits into the room of a node."""
    return all(amount <= room.get(name, 0) for name, amount in request.items())


def plus(left: Resources, right: Resources, times: int = 1) -> dict[str, int]:
    """The sum of two amounts, the second one multiplied."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + times * amount
    return total


def count(request: Resources, room: Resources) -> int:
    """How many pods with this request fit into the room; 0 where the room is negative."""
    return max(0, min((room.get(name, 0) // amount for name, amount in request.items() if amount > 0), default=0))


def share(request: Resources, total: Resources) -> float:
    """The dominant share: the largest fraction of one resource of the cluster that the request takes."""
    return max((amount / total[name] for name, amount in request.items() if total.get(name, 0) > 0), default=0.0)
