"""Schedules about groups that move: jobs that are scaled while they train, and what goes wrong at a step of a move.

Each pattern is the sequence of events in which one rule of moving is all that stands between the job and damage. Faults
wait for probes, never for a moment, so that a pattern hits its step whatever the job's pace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.sim.faults import Fault
from tests.sim.job import Shape
from tests.sim.network import Weather
from tests.sim.world import Schedule

START_S = 1.5
"""About when training has begun."""
MOVE_S = 2.5
"""About what a move takes out of training, with what goes wrong in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """What a pattern may choose from.

    Attributes:
        random: the schedule's own.
        shape: the job's, with the number of ps before the move.
        wanted: the number of ps that a user asks for.
    """

    random: Random
    shape: Shape
    wanted: int

    @property
    def grows(self) -> bool:
        """Whether ps come; otherwise they go."""
        return self.wanted > self.shape.ps

    @property
    def donor(self) -> str:
        """Who hands something over first."""
        return "ps-0" if self.grows else f"ps-{self.wanted}"

    @property
    def recipient(self) -> str:
        """Who takes over first."""
        if self.grows:
            return f"ps-{self.shape.ps}"
        return "ps-1" if (self.shape.ps, self.wanted) == (3, 2) else "ps-0"  # Of three, ps-0 has one partition more.

    @property
    def worker(self) -> str:
        """Some worker."""
        return f"worker-{self.random.randrange(self.shape.workers)}"

    def early(self) -> tuple[str, str, int]:
        """A moment in the first half of training."""
        return ("worker-0", "pushed", self.random.randint(2, max(2, self.shape.tasks * self.shape.batches // 4)))

    def scale(self, when: tuple[str, str, int], ps: int = 0) -> Fault:
        """A user asks for another number of ps."""
        return Fault(probe=when, action="scale", targets=(str(ps or self.wanted),))

    def between(self, least_s: float, most_s: float) -> float:
        """Some duration."""
        return round(self.random.uniform(least_s, most_s), 3)


def _split_by_the_former_version(moving: Moving) -> list[Fault]:
    """A worker does not hear of a version that everybody else goes by."""
    when = (moving.donor, "frozen", 1)
    return [
        moving.scale(moving.early()),
        Fault(probe=when, action="cut", targets=(moving.worker, "broker"), for_s=moving.between(0.5, 2.0)),
    ]


def _order_before_the_version(moving: Moving) -> list[Fault]:
    """A recipient does not hear that it serves what it holds, and is told to hold something else."""
    when = (moving.recipient, "GroupHeld.acked", 2)
    return [
        moving.scale(moving.early()),
        Fault(probe=when, action="cut", targets=(moving.recipient, "broker"), for_s=moving.between(0.1, 0.35)),
    ]


def _donor_dies_with_credit(moving: Moving) -> list[Fault]:
    """Ps that are not wanted any more die with what they learned after their last snapshots."""
    when = moving.early()
    if moving.random.random() < 0.4:
        return [Fault(probe=when, action="resume", targets=(str(moving.wanted),))]
    gone = range(moving.wanted, moving.shape.ps)
    return [moving.scale(when), *(Fault(probe=when, action="kill", targets=(f"ps-{number}",)) for number in gone)]


def _late_word_of_a_dead_donor(moving: Moving) -> list[Fault]:
    """As before, and a worker says only after the move that all ps had answered."""
    when = moving.early()
    cut = Fault(probe=when, action="cut", targets=(when[0], "broker"), for_s=moving.between(1.5, 3.0))
    gone = range(moving.wanted, moving.shape.ps)
    kills = [Fault(probe=when, action="kill", targets=(f"ps-{number}",)) for number in gone]
    return [cut, moving.scale(when), *kills]


def _recipient_dies_before_the_version(moving: Moving) -> list[Fault]:
    """A recipient dies when it has said that it holds a group; it is started again before the version is known."""
    held, known = (moving.recipient, "GroupHeld.stored", 2), ("master", "register.read.stored", 1)
    return [
        moving.scale(moving.early()),
        Fault(probe=held, action="freeze", targets=("master",), for_s=moving.between(0.03, 0.15)),
        Fault(probe=held, action="kill", targets=(moving.recipient,)),
        Fault(probe=known, action="freeze", targets=("master",), for_s=moving.between(0.5, 1.5)),
    ]


def _recipient_dies_after_its_word(moving: Moving) -> list[Fault]:
    """A recipient dies between what it says and its next snapshot."""
    step = moving.random.choice([("GroupHeld.stored", 2), ("GroupHeld.acked", 2), ("adopted", 1)])
    return [
        moving.scale(moving.early()),
        Fault(probe=(moving.recipient, *step), action="kill", targets=(moving.recipient,)),
    ]


def _what_came_is_damaged(moving: Moving) -> list[Fault]:
    """A recipient dies when it holds a group, and what it had registered is damaged, or a copy that this refers to.

    It may be started again before the version is known.
    """
    random, ps = moving.random, moving.recipient
    part = random.choice(["newest", "newest", "any"])
    if random.random() < 0.5:
        scale, *rest = _recipient_dies_before_the_version(moving)
        return [scale, Fault(probe=rest[0].probe, action="damage", targets=(ps, part)), *rest]
    steps = [("GroupHeld.stored", 2), ("GroupHeld.acked", 2), ("adopted", 1), ("registered", random.randint(1, 4))]
    when = (ps, *random.choice(steps))
    damage = Fault(probe=when, action="damage", targets=(ps, part))
    return [moving.scale(moving.early()), damage, Fault(probe=when, action="kill", targets=(ps,))]


def _donor_dies_while_its_copy_is_loaded(moving: Moving) -> list[Fault]:
    """A recipient is in the middle of a copy when the move is given up; the next attempt is with an older state."""
    when = moving.random.choice([(moving.donor, "SnapshotTaken.stored", 2), (moving.recipient, "loaded", 1)])
    cut = Fault(probe=(moving.donor, "registered", 1), action="cut", targets=(moving.donor, "broker"), for_s=1.5)
    return [cut, moving.scale(moving.early()), Fault(probe=when, action="kill", targets=(moving.donor,))]


def _wanted_no_more(moving: Moving) -> list[Fault]:
    """A recipient dies while the donor is frozen, and a user asks for the former number of ps."""
    when = (moving.donor, "frozen", 1)
    return [
        moving.scale(moving.early()),
        Fault(probe=when, action="kill", targets=(moving.recipient,)),
        moving.scale(when, moving.shape.ps),
    ]


def _donor_forgets(moving: Moving) -> list[Fault]:
    """A donor goes back behind what a recipient has held of it; the recipient is restored after the second attempt."""
    when = (moving.donor, "frozen", 1)
    return [
        moving.scale(moving.early()),
        Fault(probe=when, action="damage", targets=(moving.donor, "newest")),
        Fault(probe=when, action="kill", targets=(moving.donor,)),
        Fault(probe=(moving.recipient, "adopted", 2), action="kill", targets=(moving.recipient,)),
    ]


def _at_the_end(moving: Moving) -> list[Fault]:
    """Training ends when a move has just begun, and a ps that has no part in it keeps the job from closing."""
    shape = moving.shape
    batches = shape.tasks * shape.batches - (shape.batches > 1)
    last, said = ("ps-0", "push", batches), ("worker-0", "pushed", batches)
    return [
        moving.scale(last),
        Fault(probe=last, action="freeze", targets=("worker-0",), for_s=0.04),
        Fault(probe=said, action="freeze", targets=("ps-0",), for_s=moving.between(0.4, 1.0)),
    ]


def _tidies_too_late(moving: Moving) -> list[Fault]:
    """A restored ps hangs before it tidies up, and goes on, deaf, when its successor has saved something.

    Workers hear of the successor only: they would wait for the one that hangs.
    """
    ps, first = "ps-0", moving.random.randint(2, 3)
    hangs_s = moving.between(1.8, 2.3)
    tidies, workers = (ps, "tidies", 1), [f"worker-{number}" for number in range(moving.shape.workers)]
    return [
        Fault(probe=(ps, "registered", first), action="kill", targets=(ps,)),
        *(Fault(probe=(ps, "claimed", 2), action="cut", targets=(one, "broker"), for_s=0.6) for one in workers),
        Fault(probe=tidies, action="freeze", targets=(ps,), for_s=hangs_s),
        Fault(probe=tidies, action="zombie", targets=(ps,), for_s=hangs_s + 1.0),
        Fault(probe=(ps, "registered", first + 1), action="cut", targets=(ps, "broker"), for_s=1.5),
    ]


def _finds_no_room(moving: Moving) -> list[Fault]:
    """The last ps dies and finds no room for a time; fewer ps are asked for while it waits, or until it runs again."""
    last, fewer = moving.shape.ps - 1, moving.random.choice([moving.shape.ps - 1, moving.wanted])
    lasts_s = moving.random.choice([moving.between(0.3, 1.0), moving.between(1.0, 4.0)])
    return [Fault(probe=moving.early(), action="lose_room", targets=(f"ps-{last}", str(fewer)), for_s=lasts_s)]


STEPS = (
    ("donor", ("SnapshotTaken.stored", "register.stored", "frozen", "adopted", "registered", "object")),
    ("recipient", ("loaded", "held", "GroupHeld.stored", "GroupHeld.acked", "adopted", "claimed", "registered")),
    ("master", ("Decided.stored", "Decided.acked", "CommandsRan.stored", "register.stored", "register.read.stored")),
)
"""Probes that lie between the steps of a move."""


def _any_process(moving: Moving) -> list[Fault]:
    """Some of those who take part are in trouble at any step."""
    return [moving.scale(moving.early()), *(_at_a_step(moving) for _ in range(moving.random.randint(1, 3)))]


def _at_a_step(moving: Moving) -> Fault:
    """A process dies, freezes, is replaced or cut off at a step of a move."""
    random = moving.random
    role, steps = random.choice(STEPS)
    name = {"donor": moving.donor, "recipient": moving.recipient}.get(role, role)
    probe = (name, random.choice(steps), random.randint(1, 10 if role == "master" else 3))
    action = random.choice(["kill", "kill", "freeze", "zombie", "cut"])
    targets = (name, "broker") if action == "cut" else (name,)
    return Fault(probe=probe, action=action, targets=targets, for_s=moving.between(0.05, 2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A sequence of events, with the jobs in which it shows.

    Attributes:
        faults: what goes wrong.
        ps: numbers of ps before and after that it may choose from.
        shape: fields of the job's shape that can't be chosen freely.
    """

    faults: Callable[[Moving], list[Fault]]
    ps: tuple[tuple[int, int], ...]
    shape: Mapping[str, Any] = field(default_factory=dict)


FEWER = ((2, 1), (3, 2), (3, 1))
MORE = ((1, 2), (2, 3), (1, 3))
TO_ONE_RECIPIENT = ((3, 1), (2, 3), (4, 1), (4, 2))
SAVED_SELDOM = {"workers": 1, "snapshot_s": 1.5, "compute_s": 0.2, "chain_max": 8}
SAVED_OFTEN = {"snapshot_s": 0.3, "chain_max": 8, "shared_address": False}
PATTERNS = (
    Pattern(faults=_split_by_the_former_version, ps=FEWER + MORE),
    Pattern(faults=_order_before_the_version, ps=TO_ONE_RECIPIENT),
    Pattern(faults=_donor_dies_with_credit, ps=FEWER),
    Pattern(faults=_late_word_of_a_dead_donor, ps=FEWER, shape={"batches": 1}),
    Pattern(faults=_recipient_dies_before_the_version, ps=FEWER + MORE),
    Pattern(faults=_recipient_dies_after_its_word, ps=FEWER),
    Pattern(faults=_what_came_is_damaged, ps=FEWER + MORE),
    Pattern(faults=_donor_dies_while_its_copy_is_loaded, ps=FEWER, shape=SAVED_SELDOM),
    Pattern(faults=_wanted_no_more, ps=MORE),
    Pattern(faults=_donor_forgets, ps=FEWER, shape=SAVED_SELDOM),
    Pattern(faults=_at_the_end, ps=((3, 2),), shape={"workers": 1}),
    Pattern(faults=_tidies_too_late, ps=((1, 1), (2, 2)), shape=SAVED_OFTEN),
    Pattern(faults=_any_process, ps=FEWER + MORE),
)


NO_ROOM = Pattern(faults=_finds_no_room, ps=FEWER)
"""Only jobs on a cluster wait for room."""


def move_schedule(seed: int) -> Schedule:
    """The schedule of a seed; the patterns take turns."""
    return schedule_of(PATTERNS[seed // 7 % len(PATTERNS)], seed)


def schedule_of(pattern: Pattern, seed: int) -> Schedule:
    """A schedule of one pattern."""
    random = Random(seed * 7919 + 3)
    before, wanted = random.choice(pattern.ps)
    shape = Shape(
        ps=before,
        workers=random.choice([1, 2]),
        tasks=random.randint(8, 14),
        batches=random.choice([1, 1, 2]),
        grads_to_wait=random.choice([1, 1, 1, 2]),
        snapshot_s=random.choice([0.3, 0.7, 1.5]),
        compute_s=random.choice([0.1, 0.2]),
        shared_address=random.random() < 0.3,
        chain_max=random.choice([2, 4, 8]),
    )
    shape = replace(shape, **pattern.shape)
    bad = 0.01 * random.random() if random.random() < 0.2 else 0.0
    weather = Weather(latency_s=random.choice([0.0005, 0.002, 0.005]), lost=bad, unanswered=bad)
    moving = Moving(random=random, shape=shape, wanted=wanted)
    faults = pattern.faults(moving)
    if random.random() < 0.2:
        faults.append(_at_a_step(moving))
    training_s = shape.tasks * shape.batches * shape.compute_s / shape.workers
    horizon_s = round(START_S + training_s + MOVE_S + 2.0 * random.random(), 3)
    return Schedule(seed=seed, shape=shape, weather=weather, faults=tuple(faults), horizon_s=horizon_s)
