"""Runs one schedule: picks steps at random by seed, and injects faults at given steps."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.sim.ring.member import AGAIN, SimMember
from tests.sim.ring.replica import Committed
from tests.sim.ring.tables import Tables
from tests.sim.ring.world import Choice, World

from elasticdl.shared.errors import InvariantError
from elasticdl.worker.ring.core import Phase

STEPS_MAX = 2_000
_TRACE_STEPS = 60
_SLOW = 0.01


class Fault(Enum):
    """What happens to a member."""

    KILL = "kill"
    FREEZE = "freeze"
    CONTINUE = "continue"
    CUT = "cut"
    LEAVE = "leave"
    JOIN = "join"
    SPOIL = "spoil"
    SAVE = "save"
    """The ps takes a snapshot."""
    RESTORE = "restore"
    """The ps dies, and continues from its snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault before a step; ``member``: counted in the order of their start; ignored for JOIN."""

    step: int
    fault: Fault
    member: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``problem``: empty if all is well. ``steps``: how many were taken. The others: see ``World``."""

    problem: str
    steps: int
    trace: Sequence[str]
    generations: int
    pauses: Sequence[str]
    copies: int
    repeated: int
    has_joined: bool
    newer_rows: int


def simulate(
    seed: int,
    *,
    members: int,
    rounds: int,
    faults: Sequence[Injection],
    compares: bool = True,
    has_tables: bool = False,
) -> Outcome:
    """Run until nothing can happen any more.

    Args:
        compares: the weights of the members, after every round.
        has_tables: the model has tables on a ps.
    """
    chance = random.Random(seed)
    kept_bytes_max = 2 if seed % 3 == 0 else 1000
    world = World(
        members=members,
        rounds=rounds,
        width=3,
        chance=chance,
        kept_bytes_max=kept_bytes_max,
        compares=compares,
        tables=Tables(rounds=rounds, width=3) if has_tables else None,
    )
    waiting = sorted(faults, key=lambda fault: fault.step)
    trace: list[str] = []
    problem, step = "", 0
    try:
        while step < STEPS_MAX:
            choices = world.choices()
            while waiting and (waiting[0].step <= step or not choices):
                trace.append(f"--- {waiting[0].fault.value} {waiting[0].member}")
                _inject(world, waiting.pop(0))
                choices = world.choices()
            if not choices:
                break
            name, take = _pick(seed, choices, chance)
            trace.append(name)
            take()
            step += 1
        problem = problem_of(world) if step < STEPS_MAX else "it never ends"
    except (AssertionError, InvariantError) as error:
        problem = f"{type(error).__name__}: {error}"
    return Outcome(
        problem=problem,
        steps=step,
        trace=trace[-_TRACE_STEPS:],
        generations=len(world.generations),
        pauses=world.pauses,
        copies=world.copies,
        repeated=world.repeated,
        has_joined=any(one.incarnation == f"i{members}" for ring in world.generations.values() for one in ring.members),
        newer_rows=world.tables.newer_rows if world.tables else 0,
    )


def march(*, members: int, rounds: int, changes: int, seed: int = 1) -> World:
    """A large ring, whose members take their steps in turns. A member dies and another one joins, ``changes`` times."""
    chance = random.Random(seed)
    world = World(members=members, rounds=rounds, width=4, chance=chance)
    due = [rounds * (number + 1) // (changes + 1) for number in range(changes)]
    has_progress = True
    while has_progress:
        has_progress = False
        while world.log:
            world.master_step()
        for member in world.members:
            steps = 0
            while member.runs and steps < 2 * members and (choices := world.choices_of(member)):
                chance.choice(choices)[1]()
                steps += 1
            has_progress |= steps > 0
        if due and max(member.replica.step for member in world.members) >= due[0]:
            due.pop(0)
            world.kill(chance.choice([member for member in world.members if member.is_alive]))
            world.add_member()
    return world


def _pick(seed: int, choices: Sequence[Choice], chance: random.Random) -> Choice:
    """One of the next steps. Some kinds of steps of some members are slow, other ones in each schedule."""
    weights = [_weight(seed, name) for name, _ in choices]
    return chance.choices(choices, weights)[0]


def _weight(seed: int, name: str) -> float:
    if name.endswith(AGAIN):
        return _SLOW * _SLOW
    return _SLOW if zlib.crc32(f"{seed} {name.split()[:2]}".encode()) % 5 == 0 else 1.0


def _inject(world: World, injection: Injection) -> None:
    if injection.fault is Fault.JOIN:
        world.add_member()
        return
    if injection.fault in (Fault.SAVE, Fault.RESTORE):
        if world.tables is not None:
            (world.tables.save if injection.fault is Fault.SAVE else world.tables.restore)()
        return
    if injection.member >= len(world.members):
        return
    member = world.members[injection.member]
    match injection.fault:
        case Fault.KILL if member.is_alive:
            world.kill(member)
        case Fault.FREEZE if member.runs:
            world.freeze(member)
        case Fault.CONTINUE:
            member.is_frozen = False
        case Fault.CUT if member.is_alive:
            world.cut(member)
        case Fault.SPOIL if member.runs and member.replica.has_model and not member.replica.is_done:
            world.spoil(member)
        case Fault.LEAVE if member.runs:
            world.leave(member)
        case _:
            pass


def problem_of(world: World) -> str:
    """What is wrong at the end; empty: nothing."""
    working = [member for member in world.members if member.runs]
    if not working:
        return ""
    if any(not member.replica.is_done for member in working):
        return "stuck: " + ", ".join(map(_describe, working))
    history = working[0].replica.history
    if any(member.replica.history != history for member in working):
        return "replicas differ: " + ", ".join(map(_describe, working))
    if world.compares and (problem := _not_compared(working)):
        return problem
    keys = [key for batches, _ in history for key in batches]
    if len(keys) != len(set(keys)) or len(keys) != world.rounds * world.width:
        return "a batch was not absorbed exactly once"
    return _bad_sum(history) or _bad_tables(world)


def _bad_tables(world: World) -> str:
    """What the ledger of the ps lacks, or its row."""
    tables = world.tables
    if tables is None:
        return ""
    tables.finish()
    if tables.batches != world.rounds * world.width:
        return f"the ps absorbed {tables.batches} batches"
    return "" if tables.updates == world.rounds else f"the ps made {tables.updates} updates"


def _not_compared(working: Sequence[SimMember]) -> str:
    """Which of the members of the last generation did not compare their weights at the end."""
    for member in working:
        generation = member.core.generation
        if member.core.phase is not Phase.OPEN or generation is None:
            continue
        if member.core.comparison.is_waiting:
            return f"{_describe(member)} waits for checksums"
        if (generation.number, member.replica.step) not in member.compared:
            return f"{_describe(member)} was not compared"
    return "" if len({member.replica.error for member in working}) == 1 else "replicas differ by an error"


def _bad_sum(history: Sequence[Committed]) -> str:
    for batches, (_, summed) in history:
        if batches != summed:
            return f"the sum of {batches} is {summed}"
    return ""


def _describe(member: SimMember) -> str:
    return f"{member.name} at {member.replica.step} {member.core.phase.value} {member.replica.history}"


def random_faults(seed: int, members: int) -> list[Injection]:
    """Up to six faults."""
    return _with_joiner(chance := random.Random(f"faults {seed}"), _random_faults(chance, members))


def random_faults_of_both(seed: int, members: int) -> list[Injection]:
    """Up to six faults of members, and up to three restores of the ps."""
    chance = random.Random(f"faults of both {seed}")
    faults = _random_faults(chance, members)
    for fault in (Fault.SAVE, Fault.SAVE, Fault.SAVE, *([Fault.RESTORE] * chance.randint(0, 3))):
        faults.append(Injection(step=chance.randint(0, 250), fault=fault))
    return _with_joiner(chance, faults)


def _with_joiner(chance: random.Random, faults: list[Injection]) -> list[Injection]:
    return [*faults, Injection(step=250, fault=Fault.JOIN)] if chance.random() < 0.5 else faults


def _random_faults(chance: random.Random, members: int) -> list[Injection]:
    faults: list[Injection] = []
    for _ in range(chance.randint(0, 6)):
        step, victim = chance.randint(0, 200), chance.randint(0, members)
        fault = chance.choice([Fault.KILL, Fault.KILL, Fault.FREEZE, Fault.CUT, Fault.JOIN, Fault.LEAVE])
        faults.append(Injection(step=step, fault=fault, member=victim))
        if fault is Fault.FREEZE and chance.random() < 0.6:
            faults.append(Injection(step=step + chance.randint(1, 150), fault=Fault.CONTINUE, member=victim))
    return faults
