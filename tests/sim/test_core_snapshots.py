"""Core snapshots in parts: whenever a master ends, the broker has every part of the snapshot that is registered.

Former ones lie along the log: whatever happened to masters and to the log, each beginning of it is read as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

import pytest
from tests.sim.faults import Fault
from tests.sim.master import MasterProcess
from tests.sim.process import Process
from tests.sim.quiet import quiet
from tests.sim.run import tell
from tests.sim.schedule import random_schedule
from tests.sim.world import Schedule, World

from elasticdl.master.core import State
from elasticdl.master.core.fold import fold
from elasticdl.shared.bus.memory.broker import Entries
from elasticdl.shared.bus.ports import LogReader
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.names import MASTER
from elasticdl.views import core_snapshot, reading

PART = 64
BLOCK = 10
STRETCH = 40
"""Records of a stretch of which a snapshot is kept: the logs here have some hundred."""


class WatchedWorld(World):
    """Reads the core snapshot whenever a master ends, as its successor will."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.unfinished = 0
        """Masters that ended between two parts."""
        self.read = 0
        """Core snapshots that were read."""

    def ended(self, process: Process, exit_code: int) -> None:
        super().ended(process, exit_code)
        entries = self.broker.core_snapshots
        if isinstance(process, MasterProcess) and entries.present(MASTER):
            joined, unused = read_whole(entries)
            core_snapshot.decode(joined, self.job.spec)  # Raises ProtocolError if a part is missing.
            self.read += 1
            self.unfinished += bool(unused)


def read_whole(entries: Entries) -> tuple[bytes, list[str]]:
    """The core snapshot, and the names of all parts that it does not consist of."""
    register = entries.present(MASTER)
    assert register is not None
    _, count, _ = register.value.decode().split()
    write = register.value.decode().split()[0].removeprefix("EDLP")
    names = [f"{MASTER}.{write}-{number}" for number in range(int(count))]
    parts = [entry.value for name in names if (entry := entries.present(name))]
    return b"".join(parts), sorted(set(entries.former) - {*names, MASTER})


def schedule_of(seed: int) -> Schedule:
    """A random schedule whose master is also killed, frozen or replaced around some of the parts."""
    random = Random(seed)
    schedule = random_schedule(seed)
    faults = tuple(
        Fault(
            probe=(MASTER, f"core.{random.choice(['stored', 'acked'])}", random.randrange(1, 120)),
            action=(action := random.choice(["kill", "kill", "kill", "freeze", "zombie"])),
            targets=(MASTER,),
            for_s=0.0 if action == "kill" else round(0.1 + 6.0 * random.random(), 3),
        )
        for _ in range(random.randint(1, 4))
    )
    return replace(schedule, shape=replace(schedule.shape, part_bytes_max=PART), faults=(*schedule.faults, *faults))


@pytest.mark.parametrize("first", range(0, 2 * BLOCK, BLOCK))
def test_a_successor_finds_a_whole_core_snapshot(first: int) -> None:
    read = unfinished = 0
    for seed in range(first, first + BLOCK):
        schedule = schedule_of(seed)
        with quiet():
            world = WatchedWorld(schedule)
            outcome = world.run()
        assert not outcome.problems, f"seed {seed}\n{tell(schedule, outcome)}"
        read, unfinished = read + world.read, unfinished + world.unfinished
    assert read and unfinished, "no master was killed between two parts: this shows nothing"


def losing_schedule_of(seed: int) -> Schedule:
    """The same with a broker that loses the end of the log. The snapshots of what is lost stay."""
    schedule = schedule_of(seed)
    at_s = round(schedule.horizon_s * Random(seed).uniform(0.3, 0.9), 3)
    return replace(schedule, faults=(*schedule.faults, Fault(at_s=at_s, action="lose_log", targets=("end",))))


async def beginnings(world: World, random: Random) -> tuple[set[int], list[int]]:
    """Reads the log until some of its records: where the snapshots were, and of which records the state was wrong."""
    bus, records = world.broker.connect(), world.records()
    used, wrong = set(), []
    for until in random.sample(range(1, len(records) + 1), min(len(records), 12)):
        found = await reading.exact(bus, until)
        used.add(found.snapshot_seq)
        if core_snapshot.copy(found.state) != core_snapshot.copy(fold(records[:until])):
            wrong.append(until)
    return used - {0}, wrong


def read_beginnings(seeds: Iterable[int]) -> Iterator[tuple[set[int], list[int]]]:
    """What ``beginnings`` finds in the worlds of these seeds."""
    for seed in seeds:
        schedule = losing_schedule_of(seed)
        with quiet():
            world = World(schedule)
            outcome = world.run()
            assert not outcome.problems, f"seed {seed}\n{tell(schedule, outcome)}"
            yield asyncio.run(beginnings(world, Random(seed)))


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_snapshot, "STRETCH_RECORDS", STRETCH)
    monkeypatch.setattr(core_snapshot, "BYTES_PER_RECORD", 1 << 20)


@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("first", range(0, 2 * BLOCK, BLOCK))
def test_readers_of_a_beginning_of_the_log_find_the_state_of_then(first: int) -> None:
    found = list(read_beginnings(range(first, first + BLOCK)))
    assert [wrong for _, wrong in found if wrong] == []
    assert sum(len(used) for used, _ in found) > BLOCK, "few snapshots were used: this shows little"


@pytest.mark.usefixtures("short_stretches")
def test_snapshots_of_a_lost_end_are_seen_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: without this rule, a master continues from what is not on the log."""

    async def unchecked(_log: LogReader, data: bytes, spec: JobSpec | None) -> State:
        assert spec is not None
        return core_snapshot.decode(data, spec)

    monkeypatch.setattr(reading, "_checked", unchecked)
    with quiet():
        assert any(World(losing_schedule_of(seed)).run().problems for seed in range(BLOCK))
