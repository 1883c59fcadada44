"""Mutations: each removes one rule of the scheduling core, and the simulated fleets have to show the damage.

``python -m tests.fleet.mutations`` searches for seeds that show it; they are in ``SEEDS``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

from tests.fleet.run import run_seed
from tests.sim.mutations.registry import replaced

from elasticdl.controller.core import (
    Constraint,
    Job,
    Node,
    Policy,
    Role,
    View,
    queues,
    rooms,
)
from elasticdl.controller.core.plan import Plan
from elasticdl.controller.core.reversible import Reversible
from elasticdl.controller.core.stages import admission, givers, sharing

SEARCHED = 400
stages = import_module("elasticdl.controller.core.decide")
"""The module, which the package hides behind its function."""

SEEDS: Mapping[str, int] = {
    "orders are forgotten": 0,
    "nothing is undone": 7,
    "every job gives": 16,
    "stuck pods stay": 13,
    "finished jobs keep their pods": 0,
    "a lower maximum is ignored": 81,
    "pods wait where there is no room": 41,
    "services wait": 19,
    "a gang is its master": 7,
    "no job leaves": 92,
    "every job leaves": 16,
    "quotas are ignored": 194,
    "nothing is reclaimed": 340,
    "quotas are no reason to give": 115,
    "selectors are ignored": 1,
    "refusals are forgotten": 4,
    "every worker is worth it": 23,
    "weights are ignored": 53,
    "ps are not scaled": 46,
}
"""Mutation -> a seed that shows it."""

MUTATIONS: dict[str, tuple[str, Callable[[], AbstractContextManager[None]]]] = {}
"""Name -> what is true without it, and the patch."""


def mutation(rule: str) -> Callable[[Callable[[], Iterator[None]]], None]:
    """Register a patch."""

    def register(function: Callable[[], Iterator[None]]) -> None:
        MUTATIONS[function.__name__.replace("_", " ")] = rule, contextmanager(function)

    return register


def _nothing(*_arguments: Any) -> None:
    pass


@mutation("What was ordered and is not seen yet counts as done.")
def orders_are_forgotten() -> Iterator[None]:
    changes_to = View.changes_to
    with replaced(View, "changes_to", lambda self, cluster, jobs: changes_to(self, replace(cluster, ordered=()), jobs)):
        yield


@mutation("What can't be done as a whole is undone.")
def nothing_is_undone() -> Iterator[None]:
    with replaced(Reversible, "undo", _nothing):
        yield


@mutation("A job gives a worker only if it keeps at least the share of the other one.")
def every_job_gives() -> Iterator[None]:
    def takes(_plan: Plan, giver: str, taker: Job) -> bool:
        return giver != taker.name

    with replaced(sharing, "may_take", takes), replaced(givers, "may_take", takes):
        yield


@mutation("Pods that can't start return their room.")
def stuck_pods_stay() -> Iterator[None]:
    with replaced(stages, "return_stuck", _nothing):
        yield


@mutation("What finished and suspended jobs hold is returned.")
def finished_jobs_keep_their_pods() -> Iterator[None]:
    with replaced(stages, "_release", lambda _plan, job, reasons: reasons.update({job.name: "finished"})):
        yield


@mutation("Pods above the maximum leave.")
def a_lower_maximum_is_ignored() -> Iterator[None]:
    with replaced(stages, "_return_excess", _nothing):
        yield


@mutation("A pod whose room was taken goes elsewhere.")
def pods_wait_where_there_is_no_room() -> Iterator[None]:
    with replaced(stages, "_return_overbooked", _nothing):
        yield


@mutation("Pending pods of higher priority get room first.")
def services_wait() -> Iterator[None]:
    with replaced(stages, "make_room", _nothing):
        yield


@mutation("A gang starts as a whole.")
def a_gang_is_its_master() -> Iterator[None]:
    with replaced(admission, "_least", lambda _job: {Role.MASTER: 1}):
        yield


@mutation("A job of higher priority gets the room of whole jobs.")
def no_job_leaves() -> Iterator[None]:
    with replaced(admission, "_leaves_for", lambda *_: False):
        yield


@mutation("Only jobs of lower priority, or that borrow, leave as a whole.")
def every_job_leaves() -> Iterator[None]:
    with replaced(admission, "_leaves_for", lambda _plan, taker, job: taker.name != job.name):
        yield


@mutation("Queues use no more than all quotas.")
def quotas_are_ignored() -> Iterator[None]:
    with replaced(queues.Quotas, "refusal", lambda *_: ""):
        yield


@mutation("What is borrowed goes back.")
def nothing_is_reclaimed() -> Iterator[None]:
    with replaced(stages, "reclaim", lambda *_: set[str]()):
        yield


@mutation("A queue within its quota takes from one above it, never the other way round.")
def quotas_are_no_reason_to_give() -> Iterator[None]:
    with replaced(queues.Quotas, "is_over", lambda *_: False):
        yield


@mutation("Pods stand only on nodes that allow them.")
def selectors_are_ignored() -> Iterator[None]:
    kind = rooms._kind

    def everywhere(node: Node, constraints: Sequence[Constraint]) -> rooms.Kind:
        return tuple(True for _ in constraints), kind(node, constraints)[1]

    with replaced(rooms, "_kind", everywhere):
        yield


@mutation("A job gets nothing for a while after it was refused something.")
def refusals_are_forgotten() -> Iterator[None]:
    with replaced(Policy, "may_grow", lambda *_: True):
        yield


@mutation("A worker must add something by the measured curve.")
def every_worker_is_worth_it() -> Iterator[None]:
    with replaced(Policy, "worth", lambda *_: True):
        yield


@mutation("Shares are by weight.")
def weights_are_ignored() -> Iterator[None]:
    share = Plan._share
    with replaced(Plan, "_share", lambda self, job, taken: share(self, job, taken) * self.jobs[job].weight):
        yield


@mutation("Jobs that are alike get ps by their load.")
def ps_are_not_scaled() -> Iterator[None]:
    with replaced(Policy, "ps_wanted", lambda _self, job, _workers, _ps: job.ps.max):
        yield


def find(name: str, seeds: range) -> int | None:
    """The first seed that shows a mutation; None: none does."""
    _, patch = MUTATIONS[name]
    with patch():
        return next((seed for seed in seeds if run_seed(seed).problems), None)


def main() -> int:
    """Search, and print the table; the exit code is 1 when a mutation is not found."""
    is_complete = True
    for name in sys.argv[1:] or list(MUTATIONS):
        seed = find(name, range(SEARCHED))
        is_complete &= seed is not None
        sys.stdout.write(f'    "{name}": {seed},\n')
        sys.stdout.flush()
    return int(not is_complete)


if __name__ == "__main__":
    sys.exit(main())
