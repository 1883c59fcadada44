"""A price for workers: each job says what numbers of workers are worth, and takes as many as pay for themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

Worth = Sequence[tuple[int, float]]
"""(workers, what they are worth), sorted by workers; the first one has 0 workers."""


def divide(worths: Mapping[str, Worth], workers: int) -> dict[str, int]:
    """Divide workers between jobs, so that the sum of what they are worth is large.

    The sum is the largest one, except for the last few workers: a step of a job that does not fit is left out, and what
    is left goes where it adds most for each worker.
    """
    steps = sorted(
        (-gain, number, name, size)
        for number, (name, worth) in enumerate(worths.items())
        for gain, size in _hull(worth)
        if gain > 0
    )
    sizes, left, stopped = dict.fromkeys(worths, 0), workers, set[str]()
    for _, _, name, size in steps:
        if name in stopped:
            continue
        if size - sizes[name] > left:
            stopped.add(name)
            continue
        left -= size - sizes[name]
        sizes[name] = size
    while left and (best := _best_step(worths, sizes, left)):
        name, size = best
        left -= size - sizes[name]
        sizes[name] = size
    return sizes


def _hull(worth: Worth) -> list[tuple[float, int]]:
    """(gain for each worker, number of workers) of steps with falling gains: the upper hull."""
    hull: list[tuple[int, float]] = []
    for point in worth:
        while len(hull) > 1 and _gain(hull[-2], hull[-1]) < _gain(hull[-1], point):
            hull.pop()
        hull.append(point)
    return [(_gain(left, right), right[0]) for left, right in pairwise(hull)]


def _gain(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])


def _best_step(worths: Mapping[str, Worth], sizes: Mapping[str, int], left: int) -> tuple[str, int] | None:
    """The job and the number of workers with the largest gain for each worker; None: nothing adds anything."""
    best, found = 0.0, None
    for name, worth in worths.items():
        size = sizes[name]
        now = next(point for point in worth if point[0] == size)
        for point in worth:
            if size < point[0] <= size + left and (gain := _gain(now, point)) > best:
                best, found = gain, (name, point[0])
    return found
