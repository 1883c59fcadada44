"""Core snapshots: they are complete, and one that is not usable is not used."""

from __future__ import annotations

import asyncio
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.histories.snapshots import keep_snapshots
from tests.unit.master.driver import Driver, job_spec, plan
from tests.unit.master.histories import History, arriving_late
from tests.unit.shared_bus.strategies import values
from tests.unit.views.recorded import recorded

from elasticdl.master.core import State
from elasticdl.master.core.fold import Fold, fold
from elasticdl.master.snapshot_writer import CoreSnapshotWriter
from elasticdl.shared.bus.memory import MemoryBroker, MemoryBus
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import Decided, Envelope, JobResumed, LogRecord
from elasticdl.shared.messages.json_codec import JsonCodec
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import MASTER, Incarnation
from elasticdl.views import core_snapshot, reading


def example() -> Driver:
    driver = Driver(job_spec(plan(records=20_000, epochs=2)))
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task, times=Times.of({"compute": 0.1}))
    return driver


def restored(state: State) -> State:
    return core_snapshot.decode(core_snapshot.encode(state), state.spec or job_spec())


@given(st.data(), st.integers(0, 100))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_snapshot_and_the_rest_of_the_log_give_the_state_of_the_whole_log(data: st.DataObject, percent: int) -> None:
    history = History(data.draw)
    for _ in range(data.draw(st.integers(0, 40))):
        history.step()
    log = history.driver.log
    place = len(log) * percent // 100
    snapshot = restored(fold(log[:place]))
    assert snapshot == fold(log[:place])
    folding = Fold(snapshot)
    # One input before the place: a reader of the rest begins at the snapshot's own last input.
    for record in log[max(0, snapshot.seq - 1) :]:
        folding.take(record)
    assert folding.finish() == fold(log) == history.driver.state


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_decisions_that_arrive_late_are_folded_where_they_were_made(data: st.DataObject) -> None:
    history = History(data.draw)
    for _ in range(data.draw(st.integers(0, 40))):
        history.step()
    arrived = fold(arriving_late(history.driver.log, lambda: data.draw(st.booleans())))
    for field in fields(State):
        if field.name not in ("seq", "master_seq", "pending_commands"):  # Those name places in the log.
            assert getattr(arrived, field.name) == getattr(history.driver.state, field.name), field.name
    pending = history.driver.state.pending_commands
    assert [each.commands for _, each in arrived.pending_commands] == [each.commands for _, each in pending]


@given(values(Envelope) | values(JobSpec))
@settings(max_examples=50)
def test_every_kind_of_value_comes_back(value: Any) -> None:
    plain = JsonCodec(type(value))
    assert plain.load(json.loads(json.dumps(plain.dump(value)))) == value


def test_a_snapshot_grows_with_running_tasks_and_not_with_finished_ones() -> None:
    sizes = []
    for records in (10_000, 100_000):
        driver = Driver(job_spec(plan(records=records, epochs=2)))
        driver.start_all()
        for _ in range(40):
            for task in driver.dispatched():
                driver.finish(task)
        sizes.append(len(core_snapshot.encode(driver.state)))
    assert max(sizes) < 2000


def test_a_snapshot_does_not_repeat_the_sources_of_the_job() -> None:
    sources = tuple(
        Source(uri=f"s3://bucket/{number}.csv", size_bytes=1000, etag=f"{number:032x}", records=10)
        for number in range(10_000)
    )
    many = replace(plan(), sources=sources)
    driver = Driver(replace(job_spec(many), validation=many, validation_data=job_spec().data))
    driver.start_all()
    assert len(core_snapshot.encode(driver.state)) < 5000
    assert restored(driver.state) == driver.state


@pytest.mark.parametrize("place", [0, 5, 25, 30, 50, -1])
def test_a_damaged_snapshot_is_refused(place: int) -> None:
    data = bytearray(core_snapshot.encode(example().state))
    data[place] ^= 1
    with pytest.raises(ProtocolError):
        core_snapshot.decode(bytes(data), job_spec())


def test_a_truncated_snapshot_is_refused() -> None:
    data = core_snapshot.encode(example().state)
    for length in (0, 3, 20, 40, len(data) - 1):
        with pytest.raises(ProtocolError):
            core_snapshot.decode(data[:length], job_spec())


# --- recovery -----------------------------------------------------------------------------------------------------


async def bus_with(log: list[LogRecord]) -> MemoryBus:
    bus = MemoryBroker().connect()
    for record in log:
        await bus.log.append(record.envelope)
    return bus


async def test_recovery_begins_at_the_snapshot() -> None:
    driver = example()
    half = len(driver.log) // 2
    bus = await bus_with(driver.log)
    entry = await bus.core_snapshots.write(MASTER, core_snapshot.encode(fold(driver.log[:half])), after=0)
    recovered = await reading.exact(bus)
    assert recovered.state == driver.state
    assert (recovered.snapshot_seq, recovered.entry_seq) == (fold(driver.log[:half]).seq, entry)
    assert recovered.read_seq == len(driver.log)


async def test_a_snapshot_of_another_log_is_not_used() -> None:
    driver, other = example(), example()
    stranger = [replace(r, envelope=replace(r.envelope, incarnation=Incarnation("x"))) for r in other.log]
    bus = await bus_with(driver.log)
    await bus.core_snapshots.write(MASTER, core_snapshot.encode(fold(stranger[:40])), after=0)
    recovered = await reading.exact(bus)
    assert (recovered.state, recovered.snapshot_seq) == (driver.state, 0)


async def test_a_snapshot_that_is_ahead_of_the_log_is_not_used() -> None:
    driver = example()
    bus = await bus_with(driver.log[:10])
    await bus.core_snapshots.write(MASTER, core_snapshot.encode(driver.state), after=0)
    recovered = await reading.exact(bus)
    assert (recovered.state, recovered.snapshot_seq) == (fold(driver.log[:10]), 0)


async def test_a_decision_that_only_the_snapshot_has_is_made_again() -> None:
    """A power loss cut the log after the input that the snapshot's last decision followed."""
    log = example().log
    last = max(record.seq for record in log if isinstance(record.envelope.event, Decided))
    state, before = fold(log[:last]), fold(log[: last - 1])
    assert before.seq == state.seq == last - 1
    bus = await bus_with(log[: last - 1])
    await bus.core_snapshots.write(MASTER, core_snapshot.encode(state), after=0)
    recovered = await reading.exact(bus)
    assert (recovered.state, recovered.snapshot_seq) == (before, 0)
    event = JobResumed(reason="resumed", continues=before.run)
    resumed = replace(log[0].envelope, event=event, incarnation=Incarnation("l2"))
    await bus.log.append(resumed)
    recovered = await reading.exact(bus)
    assert (recovered.state.resumes, recovered.snapshot_seq) == (1, 0)
    assert recovered.state.master_seq == before.master_seq, "the next append of a master is not refused"


async def test_a_snapshot_of_another_schema_is_not_used() -> None:
    driver = example()
    bus = await bus_with(driver.log)
    data = core_snapshot.encode(driver.state)
    other = data[:4] + bytes(16) + data[20:]
    for useless in (other, b"", b"EDLC", data[:-1]):
        present = await bus.core_snapshots.read(MASTER)
        await bus.core_snapshots.write(MASTER, useless, after=present.seq if present else 0)
        recovered = await reading.exact(bus)
        assert (recovered.state, recovered.snapshot_seq) == (driver.state, 0)


async def test_a_state_before_the_snapshot_is_folded_from_the_beginning() -> None:
    driver = example()
    bus = await bus_with(driver.log)
    await bus.core_snapshots.write(MASTER, core_snapshot.encode(driver.state), after=0)
    recovered = await reading.exact(bus, until=20)
    assert (recovered.state, recovered.snapshot_seq) == (fold(driver.log[:20]), 0)


# --- those that are kept along the log ---------------------------------------------------------------------------

STRETCH = 20


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_snapshot, "STRETCH_RECORDS", STRETCH)
    monkeypatch.setattr(core_snapshot, "BYTES_PER_RECORD", 1 << 20)


async def bus_with_snapshots(log: list[LogRecord], every: int = 4) -> MemoryBus:
    bus = await bus_with(log)
    await keep_snapshots(bus.core_snapshots, log, every)
    return bus


async def check_all_beginnings(bus: MemoryBus, log: list[LogRecord]) -> list[int]:
    """Compare the state at each record with that of the whole fold; returns where the snapshots were."""
    used = set()
    for until in range(1, len(log) + 1):
        found = await reading.exact(bus, until)
        assert found.state == fold(log[:until])
        assert (found.read_seq, found.snapshot_seq <= until) == (until, True)
        used.add(found.snapshot_seq)
    return sorted(used)


async def replace_kept(bus: MemoryBus, name: str, data: bytes) -> None:
    present = await bus.core_snapshots.read(name)
    await bus.core_snapshots.write(name, data, after=present.seq if present else 0)


@pytest.mark.usefixtures("short_stretches")
async def test_the_state_at_any_record_is_folded_from_the_snapshot_before_it() -> None:
    log = recorded("evaluation")
    used = await check_all_beginnings(await bus_with_snapshots(log), log)
    assert {seq // STRETCH for seq in used} == set(range(len(log) // STRETCH))


@pytest.mark.usefixtures("short_stretches")
async def test_a_kept_snapshot_that_is_not_usable_is_passed_over() -> None:
    log = recorded("evaluation")
    bus = await bus_with_snapshots(log)
    kept = await bus.core_snapshots.read("master-4")
    assert kept
    other_schema = kept.value[:4] + bytes(16) + kept.value[20:]
    stranger = [replace(each, envelope=replace(each.envelope, incarnation=Incarnation("x"))) for each in log]
    for useless in (b"", kept.value[:-1], other_schema, core_snapshot.encode(fold(stranger[:82]))):
        await replace_kept(bus, "master-4", useless)
        assert 3 * STRETCH < (await reading.exact(bus, until=100)).snapshot_seq < 4 * STRETCH
        used = await check_all_beginnings(bus, log)
        assert 4 not in {seq // STRETCH for seq in used}


@pytest.mark.usefixtures("short_stretches")
async def test_a_master_continues_from_a_kept_snapshot_if_the_latest_one_is_damaged() -> None:
    log = recorded("evaluation")
    bus = await bus_with_snapshots(log)
    await replace_kept(bus, MASTER, b"EDLC")
    found = await reading.exact(bus)
    assert found.state == fold(log)
    assert len(log) - 2 * STRETCH < found.snapshot_seq
    latest = await bus.core_snapshots.read(MASTER)
    assert latest and found.entry_seq == latest.seq


@pytest.mark.usefixtures("short_stretches")
async def test_a_log_that_lost_its_end_goes_on_with_snapshots_of_its_own() -> None:
    """The other end has the same ids here, so only replacing the snapshots of the lost one shows its own times."""
    log = recorded("evaluation")
    cut = 90
    ours = [
        each if each.seq <= cut else replace(each, envelope=replace(each.envelope, time_s=each.envelope.time_s + 0.5))
        for each in log
    ]
    bus = await bus_with(ours[:cut])
    await keep_snapshots(bus.core_snapshots, log, 4)
    lost = await bus.core_snapshots.read("master-6")
    recovered = await reading.exact(bus)
    assert (recovered.state, recovered.snapshot_seq // STRETCH) == (fold(ours[:cut]), cut // STRETCH)
    for record in ours[cut:]:
        await bus.log.append(record.envelope)
    await keep_snapshots(bus.core_snapshots, ours, 4)
    used = await check_all_beginnings(bus, ours)
    assert {seq // STRETCH for seq in used} == set(range(len(log) // STRETCH))
    assert await bus.core_snapshots.read("master-6") != lost


@pytest.mark.usefixtures("short_stretches")
async def test_an_overtaken_master_may_replace_a_kept_snapshot_by_its_own() -> None:
    log = recorded("evaluation")
    bus = await bus_with_snapshots(log, every=4)
    await keep_snapshots(bus.core_snapshots, log[:70], every=7)
    assert len(await check_all_beginnings(bus, log)) > 3


@pytest.mark.usefixtures("short_stretches")
async def test_a_kept_snapshot_that_has_forgotten_no_evaluations_serves_readers_of_all() -> None:
    log = recorded("evaluation")
    bus = await bus_with_snapshots(log)
    forgetful = fold(log)
    forgetful.forgotten_evaluations = 1
    await replace_kept(bus, MASTER, core_snapshot.encode(forgetful))
    assert (await reading.exact(bus)).snapshot_seq == forgetful.seq
    assert 0 < (await reading.exact(bus, all_evaluations=True)).snapshot_seq < forgetful.seq


def test_snapshots_take_a_bounded_part_of_the_log() -> None:
    records = 64 * core_snapshot.STRETCH_RECORDS
    stretches = range(records // core_snapshot.STRETCH_RECORDS + 1)
    for size_bytes in (1, 2_000, 80_000, 80_001, 200_000, 1_000_000, 100_000_000):
        kept = [stretch for stretch in stretches if core_snapshot.is_kept(stretch, size_bytes)]
        assert len(kept) * size_bytes <= records * core_snapshot.BYTES_PER_RECORD
        assert 0 not in kept
        assert bool(kept) == (size_bytes < 64 * 80_000)


# --- writing ------------------------------------------------------------------------------------------------------


async def written(bus: MemoryBus, snapshots: CoreSnapshotWriter, state: State, seq: int) -> int:
    """Offer a state and wait until the register has it."""
    state.seq = seq
    snapshots.offer(state)
    writing = asyncio.create_task(snapshots.run())
    while snapshots.is_busy:
        await asyncio.sleep(0)
    writing.cancel()
    entry = await bus.core_snapshots.read(MASTER)
    return core_snapshot.seq_of(entry.value) if entry else 0


async def test_a_snapshot_is_written_every_so_many_records() -> None:
    bus = MemoryBroker().connect()
    snapshots = CoreSnapshotWriter(bus.core_snapshots, 10, await reading.exact(bus))
    state = State()
    assert [await written(bus, snapshots, state, seq) for seq in (9, 10, 19, 21, 30, 31)] == [0, 10, 10, 21, 21, 31]


async def test_no_snapshot_is_written_if_disabled() -> None:
    bus = MemoryBroker().connect()
    assert await written(bus, CoreSnapshotWriter(bus.core_snapshots, 0, await reading.exact(bus)), State(), 1000) == 0


async def test_a_fenced_master_replaces_no_newer_snapshot_and_its_successor_continues() -> None:
    broker = MemoryBroker()
    bus = broker.connect()
    recovered = await reading.exact(bus)
    old, new = (CoreSnapshotWriter(broker.connect().core_snapshots, 10, recovered) for _ in range(2))
    assert await written(bus, old, State(), 10) == 10
    assert await written(bus, new, State(), 30) == 30
    assert await written(bus, old, State(), 20) == 30
    assert await written(bus, new, State(), 40) == 40
