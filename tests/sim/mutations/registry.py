"""What a mutation is, and the list that the modules of this package fill."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.sim.schedule import random_schedule
from tests.sim.world import Schedule

from elasticdl.master.core import State
from elasticdl.master.core.evolve import HANDLERS
from elasticdl.shared.messages.events import Envelope, Event

Patch = Callable[[], AbstractContextManager[None]]


class Protects(Enum):
    """What a rule guards, so what has to be seen when it is removed."""

    EXACTLY_ONCE = "exactly once"
    """Every batch is learned exactly once and nothing that was saved is lost: an invariant, the audit or the oracle
    must show the damage. A job that gets stuck or gives up does not count."""
    LIVENESS = "liveness"
    """The job ends, and successfully: a job that gets stuck or gives up counts, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A rule removed.

    Attributes:
        name: the key in ``seeds.py``.
        rule: what is true without the mutation.
        protects: what the rule guards.
        patch: removes it.
        scenario: a file in ``tests/scenarios`` that shows the damage; empty: a random schedule shows it (``seeds.py``).
        added_epochs: that a resume adds to each job when it has finished.
        schedule: the random schedules that may show the damage, by seed.
    """

    name: str
    rule: str
    protects: Protects
    patch: Patch
    scenario: str = ""
    added_epochs: int = 0
    schedule: Callable[[int], Schedule] = random_schedule

    def is_shown_by(self, problem: str) -> bool:
        """Whether a problem of a run is damage of the kind that the rule prevents."""
        return self.protects is Protects.LIVENESS or not is_standstill(problem)


MUTATIONS: list[Mutation] = []


def mutation(
    rule: str,
    *,
    protects: Protects,
    scenario: str = "",
    added_epochs: int = 0,
    schedule: Callable[[int], Schedule] = random_schedule,
) -> Callable[[Callable[[], Iterator[None]]], Patch]:
    """Register a patch under its function's name.

    Args:
        rule: what is true without the mutation.
        protects: what the rule guards.
        scenario: see ``Mutation``.
        added_epochs: see ``Mutation``.
        schedule: see ``Mutation``.
    """

    def register(function: Callable[[], Iterator[None]]) -> Patch:
        patch = contextmanager(function)
        name = function.__name__.replace("_", " ")
        MUTATIONS.append(
            Mutation(
                name=name,
                rule=rule,
                protects=protects,
                patch=patch,
                scenario=scenario,
                added_epochs=added_epochs,
                schedule=schedule,
            )
        )
        return patch

    return register


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute of a class or module another value for a while."""
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def handled(kind: type[Event], handler: Callable[[State, Envelope, Any], None]) -> Iterator[None]:
    """Events of one kind get another handler."""
    original = HANDLERS[kind]
    HANDLERS[kind] = handler
    try:
        yield
    finally:
        HANDLERS[kind] = original


def is_standstill(problem: str) -> bool:
    """Whether a job only got stuck or gave up; its data may be all right."""
    gave_up = problem.startswith("the job is failed") and "audit" not in problem
    return problem.startswith("the job is stuck") or gave_up or problem.endswith("ended the job")
