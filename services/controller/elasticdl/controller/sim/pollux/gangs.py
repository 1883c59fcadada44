"""Places workers that exchange gradients with each other: those of a job on as few nodes as possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Gang = tuple[int, ...]
"""The node of each worker, by its number; workers on one node follow each other."""


def place(sizes: Mapping[str, int], held: Mapping[str, Gang], rooms: Sequence[int]) -> dict[str, Gang]:
    """Place jobs. One whose number of workers stays as it is keeps its nodes.

    Args:
        sizes: workers of each job; no more in all than there are rooms.
        held: where workers are now.
        rooms: how many workers each node takes.
    """
    placed = {name: gang for name, gang in held.items() if gang and sizes.get(name) == len(gang)}
    free = list(rooms)
    for gang in placed.values():
        for node in gang:
            free[node] -= 1
    missing = [name for name, size in sizes.items() if size and name not in placed]
    for name in sorted(missing, key=lambda name: -sizes[name]):
        placed[name] = _placed(sizes[name], free, max(rooms))
    return placed


def _placed(size: int, free: list[int], room_max: int) -> Gang:
    """Whole nodes first; the rest on the fullest node that holds it, or on those with the most room."""
    chosen: list[int] = []
    while len(chosen) < size:
        wanted = min(size - len(chosen), room_max)
        node = min(
            range(len(free)),
            key=lambda node: (free[node] < wanted, free[node] if free[node] >= wanted else -free[node]),
        )
        taken = min(free[node], wanted)
        chosen += [node] * taken
        free[node] -= taken
    return tuple(sorted(chosen))
