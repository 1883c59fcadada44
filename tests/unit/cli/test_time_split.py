"""Where the workers' time goes, by their heartbeats; and the goodput that a launcher shows while a job runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.unit.master.driver import Driver, job_spec

from elasticdl.cli.local.follower import Follower
from elasticdl.cli.local.time_split import TimeSplit
from elasticdl.master.core import State
from elasticdl.master.snapshots.recovery import recover
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.broker import MemoryBus
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.events import ExitCause, LogRecord, SnapshotTaken
from elasticdl.shared.names import Incarnation, PodName, Service

WORKER = PodName("worker-0")


def beat(time_s: float, progress: float, life: str = "a", name: PodName = WORKER) -> Beat:
    metrics = {"progress": progress, "batches": progress}
    return Beat(service=Service.WORKER, name=name, incarnation=Incarnation(life), time_s=time_s, metrics=metrics)


@pytest.fixture
def split() -> Iterator[TimeSplit]:
    split = TimeSplit()
    split.want([WORKER], 0.0)
    yield split
    seconds = split.seconds
    assert min(seconds.working_s, seconds.stalled_s, seconds.starting_s) >= 0.0


def found(split: TimeSplit) -> tuple[float, float, float]:
    seconds = split.seconds
    return seconds.starting_s, seconds.working_s, seconds.stalled_s


def test_a_worker_starts_works_and_is_no_longer_wanted(split: TimeSplit) -> None:
    for second in range(5):
        split.beat(beat(float(second), 0.0))
    for second in range(5, 11):
        split.beat(beat(float(second), 10.0 * (second - 4)))
    split.stop(11.0)
    assert found(split) == (5.0, 6.0, 0.0)
    split.beat(beat(12.0, 100.0))
    assert found(split) == (5.0, 6.0, 0.0)


def test_time_without_progress_beyond_the_usual_pace_is_stalled(split: TimeSplit) -> None:
    for second in range(1, 11):
        split.beat(beat(float(second), 10.0 * second))
    for second in range(11, 30):  # It lives, and has nothing to do.
        split.beat(beat(float(second), 100.0))
    split.beat(beat(30.0, 101.0))
    starting_s, working_s, stalled_s = found(split)
    assert (starting_s, working_s + stalled_s) == (1.0, 29.0)
    assert stalled_s == 18.0  # Two of the twenty seconds may have been work.


def test_what_came_of_many_seconds_is_measured_by_the_usual_pace(split: TimeSplit) -> None:
    for second in range(1, 11):
        split.beat(beat(float(second), 40.0 * second))
    split.beat(beat(18.0, 400.0 + 80.0))  # The broker was frozen, and beats with it; 80 batches take two seconds.
    assert found(split) == (1.0, 9.0 + 3.0, 5.0)


def test_slow_batches_are_no_stall(split: TimeSplit) -> None:
    for second in range(1, 61):
        split.beat(beat(float(second), float(second // 6)))
    assert found(split) == (6.0, 54.0, 0.0)


def test_from_a_death_to_the_successors_first_batch_it_starts(split: TimeSplit) -> None:
    split.beat(beat(1.0, 5.0))
    split.beat(beat(2.0, 10.0))
    split.ended(WORKER, 2.5)
    split.beat(beat(4.0, 0.0, "b"))
    split.beat(beat(6.0, 3.0, "b"))
    split.beat(beat(7.0, 4.0, "b"))
    assert found(split) == (1.0 + 3.5, 1.0 + 0.5 + 1.0, 0.0)


def test_a_frozen_worker_is_stalled(split: TimeSplit) -> None:
    split.beat(beat(1.0, 5.0))
    split.beat(beat(2.0, 10.0))
    split.ended(WORKER, 10.0)
    assert found(split) == (1.0, 1.0 + 2.0, 6.0)


def test_work_is_useful_in_the_proportion_of_what_counted(split: TimeSplit) -> None:
    split.beat(beat(1.0, 5.0))
    split.beat(beat(2.0, 10.0))
    parts = split.seconds.split(absorbed=3, computed=4)
    assert parts == {"useful": 0.75, "recomputed": 0.25, "stalled": 0.0, "starting": 1.0}
    assert split.seconds.split(absorbed=0, computed=0)["useful"] == 0.0


# --- the follower -------------------------------------------------------------------------------------------------


class Listener:
    """An audience that remembers how far it has heard."""

    seen = 0
    begun = -1

    def begin(self, state: State) -> None:
        self.begun = state.seq

    def say(self, line: str) -> None:
        raise AssertionError(line)

    def record(self, record: LogRecord, state: State) -> None:
        self.seen = record.seq

    def tick(self, state: State, beats: Mapping[PodName, Beat], pids: Mapping[str, int], goodput: float | None) -> None:
        raise AssertionError("nobody ticks here")


async def test_what_happened_before_is_told_once_and_folded_as_the_master_does() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus = MemoryBroker().connect()
    for record in driver.log[:-1]:
        await bus.log.append(record.envelope)
    listener = Listener()
    follower = Follower(listener, past=await recover(bus))
    assert (listener.begun, listener.seen) == (len(driver.log) - 1, 0)
    following = asyncio.create_task(follower.follow(bus.log))
    await bus.log.append(driver.log[-1].envelope)
    await until(lambda: listener.seen > 0)
    assert listener.seen == follower.state.seq == len(driver.log)
    following.cancel()


async def test_what_a_killed_worker_had_computed_counts_to_the_last_batch() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus, listener = MemoryBroker().connect(), Listener()
    async with followed(driver, bus, listener) as follower:
        life = driver.life("worker-0")
        await bus.signals.beat(beat(1.0, 120.0, life))
        of_ps = replace(beat(1.0, 0.0), service=Service.PS, name=PodName("ps-0"), metrics={"step": 117.0})
        await bus.signals.beat(of_ps)
        await until(lambda: len(follower.beats) == 2)
        assert follower.batches_computed == 120
        driver.take(commands.Dispatch)
        driver.exit_pod("worker-0", ExitCause.OUTSIDE, batches=130)
        for record in driver.log[listener.seen :]:
            await bus.log.append(record.envelope)
        await until(lambda: listener.seen == len(driver.log))
        assert follower.batches_computed == 130
        assert follower.goodput == pytest.approx((117 + 10) / 130)


async def test_a_ps_that_has_handed_everything_over_does_not_hold_goodput_back() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus, listener = MemoryBroker().connect(), Listener()
    async with followed(driver, bus, listener) as follower:
        await bus.signals.beat(beat(1.0, 200.0, driver.life("worker-0")))
        for name, step in (("ps-0", 200.0), ("ps-1", 20.0)):
            await bus.signals.beat(
                replace(beat(1.0, 0.0), service=Service.PS, name=PodName(name), metrics={"step": step})
            )
        await until(lambda: len(follower.beats) == 3)
        assert follower.state.holders == ("ps-0",)
        assert (follower.batches_absorbed, follower.goodput) == (200, 1.0)


async def test_what_a_snapshot_has_counts_though_no_beat_tells_of_it() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus, listener = MemoryBroker().connect(), Listener()
    async with followed(driver, bus, listener) as follower:
        life = driver.life("ps-0")
        told = Beat(
            service=Service.PS, name=PodName("ps-0"), incarnation=Incarnation(life), time_s=1.0, metrics={"step": 3.0}
        )
        await bus.signals.beat(told)
        await until(lambda: follower.batches_absorbed == 3)
        ledgers = driver.groups("ps-0", LedgerRecord(open={0: 4}, step=7))
        taken = SnapshotTaken(manifest="memory://s/1", request=1, ledgers=ledgers, size_bytes=1, seconds=0.1)
        driver.feed(taken, Service.PS, "ps-0", life)
        for record in driver.log[listener.seen :]:
            await bus.log.append(record.envelope)
        await until(lambda: listener.seen == len(driver.log))
        await bus.signals.beat(replace(told, time_s=2.0, metrics={"step": 5.0}))  # It was sent before the snapshot.
        await until(lambda: follower.beats[PodName("ps-0")].time_s == 2.0)
        assert follower.batches_absorbed == 7


@asynccontextmanager
async def followed(driver: Driver, bus: MemoryBus, listener: Listener) -> AsyncIterator[Follower]:
    """A follower that has heard all of a job's log, and goes on listening."""
    for record in driver.log:
        await bus.log.append(record.envelope)
    follower = Follower(listener, past=await recover(MemoryBroker().connect()))
    following, listening = asyncio.create_task(follower.follow(bus.log)), asyncio.create_task(follower.listen(bus))
    await until(lambda: listener.seen == len(driver.log))
    try:
        yield follower
    finally:
        following.cancel()
        listening.cancel()
        await asyncio.gather(following, listening, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)
