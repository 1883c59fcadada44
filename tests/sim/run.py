"""Runs seeds, many at a time, and tells what a failed one was about."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.sim.quiet import quiet
from tests.sim.schedule import random_schedule
from tests.sim.world import Outcome, Schedule, simulate

CHUNK = 25
"""Seeds that a process is given at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A seed that did not end well."""

    seed: int
    outcome: Outcome


@dataclass(slots=True)
class Tally:
    """What many seeds came to."""

    seeds: int = 0
    failed: int = 0
    events: int = 0
    computed: int = 0
    masters: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds, {self.failed} failed; {self.computed} batches computed, {self.masters} masters, "
            f"{self.events} events in {self.seconds:.1f} s ({1e3 * self.seconds / max(self.seeds, 1):.1f} ms a seed)"
        )


def run_seed(seed: int) -> Outcome:
    """Simulate one seed."""
    with quiet():
        return simulate(random_schedule(seed))


def run_quietly(seeds: Iterable[int]) -> list[tuple[int, Outcome]]:
    """Simulate several seeds, one after the other."""
    with quiet():
        return [(seed, _simulated(seed)) for seed in seeds]


def _simulated(seed: int) -> Outcome:
    outcome = simulate(random_schedule(seed))
    gc.collect(0)  # At once, and only what is new: the next job reuses memory that is in the processor's caches.
    return outcome


def run_seeds(start: int, count: int, *, jobs: int, tally: Tally) -> Iterator[Failed]:
    """Simulate seeds ``start`` to ``start + count - 1``; yields those that failed, as they come."""
    began_s = time.perf_counter()
    chunks = [range(first, min(first + CHUNK, start + count)) for first in range(start, start + count, CHUNK)]
    for outcomes in _results(chunks, jobs):
        for seed, outcome in outcomes:
            tally.seeds += 1
            tally.events += outcome.events
            tally.computed += outcome.computed
            tally.masters += outcome.masters
            tally.seconds = time.perf_counter() - began_s
            if outcome.problems:
                tally.failed += 1
                yield Failed(seed=seed, outcome=outcome)


def tell(schedule: Schedule, outcome: Outcome) -> str:
    """A run as people read it."""
    lines = [f"{schedule.shape}", f"{schedule.weather}", f"faults until {schedule.horizon_s:.3f} s:"]
    lines += [f"  {fault}" for fault in schedule.faults]
    lines += ["story:", *outcome.story]
    lines += [f"PROBLEM {problem}" for problem in outcome.problems]
    lines.append(
        f"{'failed' if outcome.problems else 'succeeded'} after {outcome.ended_s:.3f} virtual seconds, "
        f"{outcome.computed} batches computed, {outcome.masters} masters"
    )
    return "\n".join(lines)


def _results(chunks: list[range], jobs: int) -> Iterable[list[tuple[int, Outcome]]]:
    if jobs == 1:
        yield from map(run_quietly, chunks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(run_quietly, chunks)
