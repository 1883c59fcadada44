"""Final snapshots that can't be read back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.master.driver import PS, Driver, close, whole

from elasticdl.master.core.closing.apply import DAMAGED_MAX
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import Service


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.check_replay()


def unreadable(manifest: str) -> events.SnapshotDamaged:
    return events.SnapshotDamaged(ps=PS, snapshot=manifest, object=manifest, problem="is missing")


def test_a_damaged_final_snapshot_is_taken_again(driver: Driver) -> None:
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    ledgers = driver.groups(PS, whole(driver.state.plan))
    (order,) = driver.take(commands.TakeSnapshot)
    taken = events.SnapshotTaken(manifest="m/1", request=order.request, ledgers=ledgers, size_bytes=1, seconds=0.1)
    driver.feed(taken, Service.PS, PS, driver.incarnation(PS))
    assert driver.take(commands.ReadLedgers) == [commands.ReadLedgers(ps=PS, manifest="m/1")]
    driver.feed(unreadable("m/1"), Service.MASTER, "master", "master")
    (again,) = driver.take(commands.TakeSnapshot)
    assert (again.request, again.flush, again.damaged) == (order.request, True, "m/1")
    driver.feed(taken, Service.PS, PS, driver.incarnation(PS))  # The first order's, repeated: it comes to nothing.
    assert not driver.take(commands.ReadLedgers)
    taken = events.SnapshotTaken(manifest="m/2", request=order.request, ledgers=ledgers, size_bytes=1, seconds=0.1)
    driver.feed(taken, Service.PS, PS, driver.incarnation(PS))
    assert driver.take(commands.ReadLedgers) == [commands.ReadLedgers(ps=PS, manifest="m/2")]
    driver.feed(events.LedgersRead(ps=PS, manifest="m/2", ledgers=ledgers), Service.MASTER, "master", "master")
    assert driver.state.closing.audit is not None
    assert driver.state.closing.audit.exact
    assert [event.object for event in driver.state.damaged.values()] == ["m/1"]


def test_a_final_snapshot_that_is_damaged_after_the_end_is_replaced(driver: Driver) -> None:
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    close(driver, whole(driver.state.plan))
    assert driver.is_in(JobState.SUCCEEDED)
    (manifest,) = driver.state.closing.manifests.values()
    driver.feed(replace(unreadable(manifest), instead="m/2"), Service.PS, PS, driver.incarnation(PS))
    assert driver.state.closing.manifests == {PS: "m/2"}
    assert not driver.take(commands.TakeSnapshot)


def test_repeatedly_damaged_final_snapshots_fail_the_job(driver: Driver) -> None:
    driver.start_all()
    for task in driver.dispatched():
        driver.finish(task)
    for number in range(1, DAMAGED_MAX + 1):
        (order,) = driver.take(commands.TakeSnapshot)
        taken = events.SnapshotTaken(
            manifest=f"m/{number}", request=order.request, ledgers=(), size_bytes=1, seconds=0.1
        )
        driver.feed(taken, Service.PS, PS, driver.incarnation(PS))
        driver.feed(unreadable(f"m/{number}"), Service.MASTER, "master", "master")
    assert f"m/{DAMAGED_MAX} is missing" in driver.failure()
    assert driver.is_in(JobState.STOPPING)
