"""Where the workers' time goes, by their heartbeats; and the live goodput of a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tests.unit.master.driver import Driver, job_spec

from elasticdl.master.core import State
from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.bus.memory.broker import MemoryBus
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.events import ExitCause, LogRecord, ScaleRequested, SnapshotTaken
from elasticdl.shared.names import Incarnation, PodName, Service
from elasticdl.shared.process.clock import VirtualClock
from elasticdl.views import reading
from elasticdl.views.job_monitor import JobMonitor
from elasticdl.views.lost_time import WorkerTime

WORKER = PodName("worker-0")


def heartbeat(time_s: float, progress: float, life: str = "a", name: PodName = WORKER) -> Heartbeat:
    metrics = {"progress": progress, "batches": progress}
    return Heartbeat(service=Service.WORKER, name=name, incarnation=Incarnation(life), time_s=time_s, metrics=metrics)


@pytest.fixture
def worker_time() -> Iterator[WorkerTime]:
    worker_time = WorkerTime()
    worker_time.expect([WORKER], 0.0)
    yield worker_time
    seconds = worker_time.seconds
    assert min(seconds.working_s, seconds.stalled_s, seconds.starting_s) >= 0.0


def found(worker_time: WorkerTime) -> tuple[float, float, float]:
    seconds = worker_time.seconds
    return seconds.starting_s, seconds.working_s, seconds.stalled_s


def test_a_worker_starts_works_and_is_no_longer_expected(worker_time: WorkerTime) -> None:
    for second in range(5):
        worker_time.on_heartbeat(heartbeat(float(second), 0.0))
    for second in range(5, 11):
        worker_time.on_heartbeat(heartbeat(float(second), 10.0 * (second - 4)))
    worker_time.stop(11.0)
    assert found(worker_time) == (5.0, 6.0, 0.0)
    worker_time.on_heartbeat(heartbeat(12.0, 100.0))
    assert found(worker_time) == (5.0, 6.0, 0.0)


def test_a_worker_that_is_stuck_is_stalled_before_it_continues(worker_time: WorkerTime) -> None:
    for second in range(1, 11):
        worker_time.on_heartbeat(heartbeat(float(second), 10.0 * second))
    for second in range(11, 101):
        worker_time.on_heartbeat(heartbeat(float(second), 100.0))
    starting_s, working_s, stalled_s = found(worker_time)
    assert (starting_s, working_s, stalled_s) == (1.0, 11.0, 88.0)
    worker_time.on_heartbeat(heartbeat(101.0, 101.0))
    worker_time.on_heartbeat(heartbeat(102.0, 111.0))
    assert found(worker_time) == (1.0, 12.0, 89.0)


def test_a_worker_that_hung_on_its_first_batch_was_stalled(worker_time: WorkerTime) -> None:
    for second in range(1, 31):
        worker_time.on_heartbeat(heartbeat(float(second), 0.0))
    worker_time.on_exit(WORKER, 30.0, has_hung=True)
    worker_time.on_heartbeat(heartbeat(32.0, 1.0, "b"))
    assert found(worker_time) == (2.0, 0.0, 30.0)


def test_time_without_progress_beyond_the_usual_pace_is_stalled(worker_time: WorkerTime) -> None:
    for second in range(1, 11):
        worker_time.on_heartbeat(heartbeat(float(second), 10.0 * second))
    for second in range(11, 30):  # It is running and has nothing to do.
        worker_time.on_heartbeat(heartbeat(float(second), 100.0))
    worker_time.on_heartbeat(heartbeat(30.0, 101.0))
    starting_s, working_s, stalled_s = found(worker_time)
    assert (starting_s, working_s + stalled_s) == (1.0, 29.0)
    assert stalled_s == 18.0  # Two of the twenty seconds may have been work.


def test_progress_after_a_gap_is_measured_by_the_usual_pace(worker_time: WorkerTime) -> None:
    for second in range(1, 11):
        worker_time.on_heartbeat(heartbeat(float(second), 40.0 * second))
    worker_time.on_heartbeat(heartbeat(18.0, 400.0 + 80.0))  # The broker hung; 80 batches take two seconds.
    assert found(worker_time) == (1.0, 9.0 + 3.0, 5.0)


def test_slow_batches_are_not_stalls(worker_time: WorkerTime) -> None:
    for second in range(1, 61):
        worker_time.on_heartbeat(heartbeat(float(second), float(second // 6)))
    assert found(worker_time) == (6.0, 54.0, 0.0)


def test_after_a_death_the_time_to_the_first_batch_of_the_successor_counts_as_starting(worker_time: WorkerTime) -> None:
    worker_time.on_heartbeat(heartbeat(1.0, 5.0))
    worker_time.on_heartbeat(heartbeat(2.0, 10.0))
    worker_time.on_exit(WORKER, 2.5)
    worker_time.on_heartbeat(heartbeat(4.0, 0.0, "b"))
    worker_time.on_heartbeat(heartbeat(6.0, 3.0, "b"))
    worker_time.on_heartbeat(heartbeat(7.0, 4.0, "b"))
    assert found(worker_time) == (1.0 + 3.5, 1.0 + 0.5 + 1.0, 0.0)


def test_a_hung_worker_is_stalled(worker_time: WorkerTime) -> None:
    worker_time.on_heartbeat(heartbeat(1.0, 5.0))
    worker_time.on_heartbeat(heartbeat(2.0, 10.0))
    worker_time.on_exit(WORKER, 10.0)
    assert found(worker_time) == (1.0, 1.0 + 2.0, 6.0)


def test_the_first_batches_that_the_log_tells_of_end_the_start(worker_time: WorkerTime) -> None:
    worker_time.on_heartbeat(heartbeat(1.0, 0.0))
    worker_time.on_finished(WORKER, Incarnation("a"), 16, (3.5, 4.0))
    assert found(worker_time) == (3.5, 0.5, 0.0)
    worker_time.on_finished(WORKER, Incarnation("a"), 16, (3.9, 4.2))
    worker_time.on_heartbeat(heartbeat(5.0, 40.0))
    worker_time.stop(6.0)
    assert found(worker_time) == (3.5, 2.5, 0.0)
    worker_time.on_finished(WORKER, Incarnation("b"), 1, (7.0, 8.0))
    assert found(worker_time) == (3.5, 2.5, 0.0), "no worker is expected any more"


def test_a_report_of_a_former_instance_does_not_end_the_start_of_the_present_one(worker_time: WorkerTime) -> None:
    worker_time.on_heartbeat(heartbeat(1.0, 0.0, "b"))
    worker_time.on_finished(WORKER, Incarnation("a"), 1, (0.5, 2.0))
    worker_time.stop(3.0)
    assert found(worker_time) == (3.0, 0.0, 0.0)


# --- the job monitor -------------------------------------------------------------------------------------------------


class Recorder:
    """Remembers the last record that it was called for."""

    seen = 0

    def __call__(self, record: LogRecord, state: State) -> None:
        self.seen = record.seq


async def test_earlier_records_are_folded_without_being_reported() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus = MemoryBroker().connect()
    for record in driver.log[:-1]:
        await bus.log.append(record.envelope)
    observer = Recorder()
    monitor = JobMonitor(await reading.exact(bus), VirtualClock(2.0), observer)
    assert (monitor.state.seq, observer.seen) == (len(driver.log) - 1, 0)
    following = asyncio.create_task(monitor.follow(bus.log))
    await bus.log.append(driver.log[-1].envelope)
    await until(lambda: observer.seen > 0)
    assert observer.seen == monitor.state.seq == len(driver.log)
    following.cancel()


async def test_all_batches_of_a_killed_worker_are_counted() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus, observer = MemoryBroker().connect(), Recorder()
    async with followed(driver, bus, observer) as monitor:
        life = driver.incarnation("worker-0")
        await bus.signals.send_heartbeat(heartbeat(1.0, 120.0, life))
        ps = PodName("ps-0")
        of_ps = replace(heartbeat(1.0, 0.0, driver.incarnation(ps), ps), service=Service.PS, metrics={"step": 117.0})
        await bus.signals.send_heartbeat(of_ps)
        await until(lambda: len(monitor.heartbeats) == 2)
        assert monitor.meter.batches_computed == 120
        driver.take(commands.Dispatch)
        driver.exit_pod("worker-0", ExitCause.PREEMPTED, batches=130)
        for record in driver.log[observer.seen :]:
            await bus.log.append(record.envelope)
        await until(lambda: observer.seen == len(driver.log))
        assert monitor.meter.batches_computed == 130
        assert monitor.meter.goodput(monitor.state) == pytest.approx((117 + 10) / 130)


async def test_a_ps_without_groups_does_not_reduce_goodput() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    driver.feed(ScaleRequested(ps=2), Service.CLIENT, "client")
    bus, observer = MemoryBroker().connect(), Recorder()
    async with followed(driver, bus, observer) as monitor:
        await bus.signals.send_heartbeat(heartbeat(1.0, 200.0, driver.incarnation("worker-0")))
        for name, life, step in (("ps-0", driver.incarnation("ps-0"), 200.0), ("ps-1", "b", 20.0)):
            of_ps = replace(heartbeat(1.0, 0.0, life, PodName(name)), service=Service.PS, metrics={"step": step})
            await bus.signals.send_heartbeat(of_ps)
        await until(lambda: len(monitor.heartbeats) == 3)
        assert monitor.state.holders == ("ps-0",)
        assert (monitor.meter.batches_absorbed(monitor.state), monitor.meter.goodput(monitor.state)) == (200, 1.0)


async def test_the_step_of_a_snapshot_counts_even_if_no_heartbeat_has_reported_it() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus, observer = MemoryBroker().connect(), Recorder()
    async with followed(driver, bus, observer) as monitor:
        life = driver.incarnation("ps-0")
        told = Heartbeat(
            service=Service.PS, name=PodName("ps-0"), incarnation=Incarnation(life), time_s=1.0, metrics={"step": 3.0}
        )
        await bus.signals.send_heartbeat(told)
        await until(lambda: monitor.meter.batches_absorbed(monitor.state) == 3)
        ledgers = driver.groups("ps-0", LedgerRecord(open={0: 4}, step=7))
        taken = SnapshotTaken(manifest="memory://s/1", request=1, ledgers=ledgers, size_bytes=1, seconds=0.1)
        driver.feed(taken, Service.PS, "ps-0", life)
        for record in driver.log[observer.seen :]:
            await bus.log.append(record.envelope)
        await until(lambda: observer.seen == len(driver.log))
        await bus.signals.send_heartbeat(
            replace(told, time_s=2.0, metrics={"step": 5.0})
        )  # It was sent before the snapshot.
        await until(lambda: monitor.heartbeats[PodName("ps-0")].time_s == 2.0)
        assert monitor.meter.batches_absorbed(monitor.state) == 7


async def test_heartbeats_of_other_names_and_instances_are_not_stored_and_times_are_those_of_the_job() -> None:
    driver = Driver(job_spec(workers=1))
    driver.start_all()
    bus, observer = MemoryBroker().connect(), Recorder()
    with capture_logs() as logged:
        await _send_invented(driver, bus, observer)
    assert [line["process"] for line in logged] == ["invented-0"]


async def _send_invented(driver: Driver, bus: MemoryBus, observer: Recorder) -> None:
    clock = VirtualClock(2.0)
    async with followed(driver, bus, observer, clock) as monitor:
        for seconds in (2.0, 13.0):  # The log may be later than the first heartbeats of a process.
            clock.advance(seconds - clock.now())
            for number in range(100):
                await bus.signals.send_heartbeat(heartbeat(1.0, 5.0, "a", PodName(f"invented-{number}")))
                await bus.signals.send_heartbeat(heartbeat(1.0, 5.0, f"invented-{number}"))
            await bus.signals.send_heartbeat(heartbeat(4e9, 7.0, driver.incarnation(WORKER)))
            await until(lambda: [each.time_s for each in monitor.heartbeats.values()] == [clock.now()])
        assert list(monitor.heartbeats) == [WORKER]
        assert monitor.meter.batches_computed == 7


@asynccontextmanager
async def followed(
    driver: Driver, bus: MemoryBus, observer: Recorder, clock: VirtualClock | None = None
) -> AsyncIterator[JobMonitor]:
    """A monitor that has folded all of a job's log, and keeps listening."""
    for record in driver.log:
        await bus.log.append(record.envelope)
    monitor = JobMonitor(await reading.exact(MemoryBroker().connect()), clock or VirtualClock(2.0), observer)
    following, listening = asyncio.create_task(monitor.follow(bus.log)), asyncio.create_task(monitor.listen(bus))
    await until(lambda: observer.seen == len(driver.log))
    try:
        yield monitor
    finally:
        following.cancel()
        listening.cancel()
        await asyncio.gather(following, listening, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)
