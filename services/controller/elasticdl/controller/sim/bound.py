"""What no placement can exceed: an upper bound on the CPU that pods of jobs take, for whole pods on single nodes."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache


def packing_bound(rooms: Counter[int], worker: int, ps: int, ps_pods: int, ps_counts: bool) -> int:
    """Most millicores of workers (and of ps) if a number of ps must be placed.

    The Lagrangian dual over the patterns of a node: each ps has a price, and the price with the lowest total gives the
    bound. It is valid for any price, so an inexact search only makes it looser.

    Args:
        rooms: free millicores of a node -> number of nodes.
        ps_counts: whether the ps count, too; otherwise only workers do.
    """
    return _bound(tuple(sorted(rooms.items())), worker, ps, ps_pods, ps_counts)


@lru_cache(maxsize=4096)
def _bound(rooms: tuple[tuple[int, int], ...], worker: int, ps: int, ps_pods: int, ps_counts: bool) -> int:
    patterns = [
        (number, [((room - k * ps) // worker * worker, k) for k in range(room // ps + 1)] if ps else [(room, 0)])
        for room, number in rooms
        if room > 0
    ]

    def dual(price: float) -> float:
        best = sum(number * max(value - price * k for value, k in each) for number, each in patterns)
        return best + price * ps_pods

    low, high = -2.0 * worker - 2.0 * ps, 2.0 * worker + 2.0 * ps
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if dual(left) <= dual(right):
            high = right
        else:
            low = left
    return int(dual((low + high) / 2) + 1e-3) + (ps * ps_pods if ps_counts else 0)
