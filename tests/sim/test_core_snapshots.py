"""Core snapshots in parts: whenever a master ends, the broker has every part of the snapshot that is registered."""

from __future__ import annotations

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

from elasticdl.shared.bus.memory.broker import Entries
from elasticdl.shared.names import MASTER
from elasticdl.views import core_snapshot

PART = 64
BLOCK = 10


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
