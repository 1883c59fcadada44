"""Moves in the master's core: which partitions move, in which steps, and what a crash changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.master.driver import Driver, job_spec, plan

from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.placement import PARTITIONS, Placement, group_id
from elasticdl.shared.names import PodInstance, PodName, Service

PS_0, PS_1 = PodName("ps-0"), PodName("ps-1")


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver(job_spec(plan(), workers=1))
    driver.start_all()
    initialise(driver, "ps-0")
    yield driver
    driver.check_replay()


def initialise(driver: Driver, ps: str) -> None:
    driver.feed(events.ModelInitialised(signature="s", parameters=1), Service.PS, ps, driver.incarnation(ps))


def scale(driver: Driver, ps: int) -> None:
    driver.feed(events.ScaleRequested(ps=ps), Service.CLIENT, "client")
    for command in driver.take(commands.StartPod):
        driver.start_pod(command.pod)


def snapshot(driver: Driver, size_bytes: int = 1) -> commands.TakeSnapshot:
    """Answer the pending snapshot order."""
    (order,) = driver.take(commands.TakeSnapshot)
    taken = events.SnapshotTaken(
        manifest=f"memory://{order.ps}/{order.request}",
        request=order.request,
        ledgers=(),
        size_bytes=size_bytes,
        seconds=0.1,
    )
    driver.feed(taken, Service.PS, order.ps, driver.incarnation(order.ps))
    return order


def hold(driver: Driver, ledger: LedgerRecord | None = None, failure: str = "") -> commands.HoldGroup:
    """Answer the pending order to hold partitions."""
    (order,) = driver.take(commands.HoldGroup)
    ledgers = GroupLedger(
        group=group_id(order.partitions), ledger=ledger or LedgerRecord(), partitions=order.partitions
    )
    held = events.GroupHeld(move=order.move, manifest=order.manifest, ledgers=(ledgers,), failure=failure)
    driver.feed(held, Service.PS, order.ps, driver.incarnation(order.ps))
    return order


def move(driver: Driver, ledger: LedgerRecord | None = None) -> Placement:
    """One whole move; the placement that it leads to."""
    assert not snapshot(driver).freeze
    hold(driver)
    assert snapshot(driver).freeze
    hold(driver, ledger)
    return published(driver)


def published(driver: Driver) -> Placement:
    (publish,) = driver.take(commands.PublishPlacement)
    assert driver.state.placement == Placement(version=publish.version, owners=publish.owners)
    return driver.state.placement


def shares(driver: Driver) -> dict[int, int]:
    owners = driver.state.placement.owners
    return {ps: owners.count(ps) for ps in sorted(set(owners))}


def test_half_of_the_model_moves_to_a_second_ps_and_back(driver: Driver) -> None:
    driver.finish(0)
    scale(driver, 2)
    (begun,) = driver.take(commands.BeginMove)
    assert (begun.donor, begun.recipient, begun.partitions, begun.stored) == (PS_0, PS_1, ((128, 256),), False)
    move(driver, LedgerRecord(finished=((0, 1),)))
    assert shares(driver) == {0: 128, 1: 128}
    assert driver.state.move is None
    assert driver.take(commands.BeginMove) == [], "nothing more to do"
    assert driver.state.training is not None
    assert 0 in driver.state.training.complete
    scale(driver, 1)
    move(driver, LedgerRecord(finished=((0, 1),)))
    assert shares(driver) == {0: PARTITIONS}
    assert [order.pod for order in driver.take(commands.StopPod)] == [PS_1]
    assert set(driver.state.training.credits) == {PS_0}


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 2), (4, 1), (2, 5), (7, 4)])
def test_every_wanted_ps_gets_its_share_and_no_more_moves_than_needed(before: int, after: int) -> None:
    driver = Driver(job_spec(plan(), workers=1, ps=before))
    driver.start_all()
    for number in range(before):
        initialise(driver, f"ps-{number}")
    scale(driver, after)
    moves, moved = 0, 0
    while driver.state.move is not None:
        moves += 1
        moved += sum(end - start for start, end in driver.state.move.partitions)
        move(driver)
    counts = shares(driver)
    assert sorted(counts) == list(range(after))
    assert max(counts.values()) - min(counts.values()) <= 1
    most = PARTITIONS - PARTITIONS * min(before, after) // max(before, after)
    assert moved <= most + max(before, after)
    assert moves <= before + after
    driver.check_replay()


def test_a_task_that_the_group_lacks_is_dispatched_again(driver: Driver) -> None:
    driver.finish(0)
    driver.finish(1)
    scale(driver, 2)
    driver.take(commands.Dispatch)
    move(driver, LedgerRecord(finished=((1, 2),)))
    (again,) = driver.take(commands.Dispatch)
    assert (again.again, again.tasks) == (True, ((0, 1),))
    assert driver.state.training is not None
    assert 1 in driver.state.training.complete


def test_a_task_that_finished_by_an_earlier_table_is_dispatched_again(driver: Driver) -> None:
    scale(driver, 2)
    move(driver)
    driver.take(commands.Dispatch)
    driver.finish(3, placement_version=1)
    (again,) = driver.take(commands.Dispatch)
    assert (again.again, again.tasks) == (True, ((3, 4),))
    driver.finish(3)
    assert driver.state.training is not None
    assert 3 in driver.state.training.complete


@pytest.mark.parametrize("step", ["none", "copying", "catching up"])
def test_a_version_of_the_placement_that_no_master_has_decided_is_replaced(driver: Driver, step: str) -> None:
    if step != "none":
        begin(driver, step)
    driver.take(commands.Dispatch)
    before = driver.state.placement
    holder = {PS_0: driver.incarnation("ps-0")}
    driver.finish(3, placement_version=1000, credits=holder)
    (publish,) = driver.take(commands.PublishPlacement)
    assert (publish.version, publish.owners) == (1001, before.owners)
    assert (driver.state.placement.version, driver.state.move) == (1001, None)
    assert driver.take(commands.PublishPlacement) == []
    driver.finish(3, placement_version=1001, credits=holder)
    assert driver.state.training is not None
    assert 3 in driver.state.training.complete


STEPS = ("copying", "loading", "freezing", "catching up")


def begin(driver: Driver, step: str) -> None:
    """A move, up to a step."""
    scale(driver, 2)
    for name in STEPS[: STEPS.index(step)]:
        hold(driver) if name == "loading" else snapshot(driver)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("who", ["ps-0", "ps-1"])
def test_a_crash_during_a_move_aborts_it_unless_the_donor_is_done(driver: Driver, step: str, who: str) -> None:
    begin(driver, step)
    driver.exit_pod(who, events.ExitCause.PREEMPTED)
    if (step, who) == ("catching up", "ps-0"):
        hold(driver)
        published(driver)
        assert shares(driver) == {0: 128, 1: 128}
        return
    placement = published(driver)
    assert (placement.version, shares(driver)) == (2, {0: PARTITIONS}), "given up: a version with the old owners"
    ledger = {"g": LedgerRecord()} if who == "ps-0" else None
    driver.start_pod(who, ledger)
    for kind in (commands.TakeSnapshot, commands.HoldGroup):
        driver.take(kind)
    driver.fire("move again")
    assert driver.state.move is not None
    assert driver.state.move.number == 3
    move(driver)
    assert shares(driver) == {0: 128, 1: 128}


@pytest.mark.parametrize("step", ["loading", "catching up"])
def test_a_group_that_can_not_be_held_aborts_the_move(driver: Driver, step: str) -> None:
    begin(driver, step)
    hold(driver, failure="the snapshot is damaged")
    assert published(driver).version == 2
    assert shares(driver) == {0: PARTITIONS}


def test_a_donor_is_frozen_for_a_limited_time(driver: Driver) -> None:
    begin(driver, "catching up")
    driver.fire("move")
    assert published(driver).version == 2
    assert shares(driver) == {0: PARTITIONS}


def test_a_ps_that_is_not_wanted_any_more_and_dies_is_read_from_its_snapshot(driver: Driver) -> None:
    scale(driver, 2)
    move(driver)
    taken = events.SnapshotTaken(manifest="memory://ps-1/9", request=0, ledgers=(), size_bytes=1, seconds=0.1)
    driver.feed(taken, Service.PS, "ps-1", driver.incarnation("ps-1"))
    scale(driver, 1)
    driver.exit_pod("ps-1", events.ExitCause.PREEMPTED)
    published(driver)
    driver.fire("move again")
    assert driver.take(commands.StartPod) == []
    assert driver.state.move is not None
    assert driver.state.move.stored
    driver.take(commands.TakeSnapshot)
    driver.take(commands.HoldGroup)
    held = events.GroupHeld(
        move=driver.state.move.number,
        manifest="memory://ps-1/9",
        ledgers=(GroupLedger(group=group_id(((128, 256),)), ledger=LedgerRecord(), partitions=((128, 256),)),),
    )
    driver.feed(held, Service.PS, "ps-0", driver.incarnation("ps-0"))
    published(driver)
    assert shares(driver) == {0: PARTITIONS}
    assert driver.state.all_ps_running


def test_a_job_resumed_with_fewer_ps_reads_the_others_from_their_snapshots(driver: Driver) -> None:
    scale(driver, 2)
    move(driver)
    taken = events.SnapshotTaken(manifest="memory://ps-1/9", request=0, ledgers=(), size_bytes=1, seconds=0.1)
    driver.feed(taken, Service.PS, "ps-1", driver.incarnation("ps-1"))
    driver.feed(events.JobResumed(reason="test", ps=1), Service.LAUNCHER, "launcher")
    assert published(driver).version == 2, "the orders of before are gone: the table is made known again"
    assert [order.pod for order in driver.take(commands.StartPod)] == ["ps-0", "worker-0"]
    driver.start_pod("ps-0", {"g": LedgerRecord()})
    driver.start_pod("worker-0")
    assert driver.is_in(JobState.STARTING)
    (begun,) = [one for one in driver.take(commands.BeginMove) if one.stored]
    assert (begun.donor, begun.recipient) == (PS_1, PS_0)
    hold(driver)
    published(driver)
    assert driver.is_in(JobState.TRAINING)


def without_a_place(driver: Driver, *, has_snapshot: bool = True) -> None:
    """Of two ps, the second one was preempted, and its next pod finds no room."""
    scale(driver, 2)
    driver.take(commands.BeginMove)
    move(driver, LedgerRecord(finished=((0, 2),)))
    if has_snapshot:
        taken = events.SnapshotTaken(manifest="memory://ps-1/9", request=0, ledgers=(), size_bytes=1, seconds=0.1)
        driver.feed(taken, Service.PS, "ps-1", driver.incarnation("ps-1"))
    driver.exit_pod("ps-1", events.ExitCause.PREEMPTED)
    assert [order.pod for order in driver.take(commands.StartPod)] == ["ps-1"]
    driver.feed_from_launcher(events.PodPending(pod=PS_1, service=Service.PS, reason="Unschedulable: 0/1 nodes"))


def never_started(driver: Driver) -> None:
    """The pod of the second ps is deleted before it has run: the platform reports its start and its end together."""
    instance = PodInstance("never started 9")
    driver.feed_from_launcher(events.PodStarted(pod=PS_1, service=Service.PS, instance=instance))
    stopped = events.ExitCause.STOPPED
    driver.feed_from_launcher(
        events.PodExited(pod=PS_1, service=Service.PS, instance=instance, cause=stopped, exit_code=0)
    )


def test_the_part_of_a_ps_without_a_place_is_restored_from_its_snapshot(driver: Driver) -> None:
    driver.finish(0)
    driver.finish(1)
    without_a_place(driver)
    driver.take(commands.Dispatch)
    driver.feed(events.ScaleRequested(ps=1), Service.CLIENT, "client")
    assert [order.pod for order in driver.take(commands.StopPod)] == ["ps-1"], "it may find a place any time"
    (begun,) = driver.take(commands.BeginMove)
    assert (begun.donor, begun.recipient, begun.stored) == (PS_1, PS_0, True)
    never_started(driver)
    assert driver.take(commands.StartPod) == [], "its part is on storage"
    hold(driver, LedgerRecord(finished=((0, 1),)))
    published(driver)
    assert shares(driver) == {0: PARTITIONS}
    (again,) = driver.take(commands.Dispatch)
    assert (again.again, again.tasks) == (True, ((1, 2),)), "its ledger lacks it"
    assert driver.take(commands.StartPod) == []


def test_a_ps_without_a_place_and_without_a_snapshot_is_waited_for(driver: Driver) -> None:
    without_a_place(driver, has_snapshot=False)
    driver.feed(events.ScaleRequested(ps=1), Service.CLIENT, "client")
    assert driver.take(commands.StopPod) == []
    assert driver.take(commands.BeginMove) == []


def test_a_ps_that_is_wanted_again_gets_a_place_after_its_part_has_moved(driver: Driver) -> None:
    without_a_place(driver)
    driver.feed(events.ScaleRequested(ps=1), Service.CLIENT, "client")
    driver.take(commands.BeginMove)
    driver.feed(events.ScaleRequested(ps=2), Service.CLIENT, "client")
    assert driver.take(commands.StartPod) == [], "the former pod is still being deleted"
    never_started(driver)
    assert [order.pod for order in driver.take(commands.StartPod)] == ["ps-1"]
    hold(driver)
    published(driver)
    assert shares(driver) == {0: PARTITIONS}
    driver.start_pod("ps-1")
    assert [(begun.donor, begun.recipient) for begun in driver.take(commands.BeginMove)] == [(PS_0, PS_1)]


def test_a_donor_whose_snapshot_can_not_be_read_is_started_again(driver: Driver) -> None:
    scale(driver, 2)
    move(driver)
    taken = events.SnapshotTaken(manifest="memory://ps-1/9", request=0, ledgers=(), size_bytes=1, seconds=0.1)
    driver.feed(taken, Service.PS, "ps-1", driver.incarnation("ps-1"))
    driver.feed(events.JobResumed(reason="test", ps=1), Service.LAUNCHER, "launcher")
    driver.take(commands.StartPod)
    driver.start_pod("ps-0", {"g": LedgerRecord()})
    hold(driver, failure="the snapshot is damaged")
    assert [order.pod for order in driver.take(commands.StartPod)] == ["ps-1"], "it knows older snapshots"
    driver.take(commands.BeginMove)
    driver.start_pod("ps-1", {"g": LedgerRecord()})
    driver.fire("move again")
    assert [(begun.donor, begun.stored) for begun in driver.take(commands.BeginMove)] == [(PS_1, False)]
    driver.take(commands.PublishPlacement)
    move(driver)
    assert [order.pod for order in driver.take(commands.StopPod)] == ["ps-1"]
    assert shares(driver) == {0: PARTITIONS}


def test_evaluations_and_moves_exclude_each_other() -> None:
    driver = Driver(job_spec(plan(), workers=1, validation=plan(records=100, epochs=1), evaluation_steps=10))
    driver.start_all()
    initialise(driver, "ps-0")
    reached = events.StepReached(step=10)
    driver.feed(reached, Service.PS, "ps-0", driver.incarnation("ps-0"))
    assert len(driver.take(commands.OpenPin)) == 1
    scale(driver, 2)
    assert driver.take(commands.BeginMove) == [], "the evaluation comes first"
    driver.exit_pod("worker-0", events.ExitCause.PREEMPTED)
    evaluation = driver.state.evaluation
    assert evaluation is not None
    finish_evaluation(driver)
    assert len(driver.take(commands.BeginMove)) == 1
    driver.feed(events.StepReached(step=20), Service.PS, "ps-0", driver.incarnation("ps-0"))
    assert driver.take(commands.OpenPin) == [], "the move comes first"
    move(driver)
    assert sorted(order.ps for order in driver.take(commands.OpenPin)) == [PS_0, PS_1]
    driver.check_replay()


def finish_evaluation(driver: Driver) -> None:
    evaluation = driver.state.evaluation
    assert evaluation is not None
    pinned = events.ModelPinned(evaluation=evaluation.number, step=10)
    driver.feed(pinned, Service.PS, "ps-0", driver.incarnation("ps-0"))
    for purpose in ("evaluate", "merge"):
        for command in driver.take(commands.Dispatch):
            if command.purpose.value != purpose:
                continue
            for start, end in command.tasks:
                for number in range(start, end):
                    driver.finish(number, purpose=command.purpose)


def test_large_copies_are_followed_by_others_before_the_donor_freezes(driver: Driver) -> None:
    scale(driver, 2)
    for size_bytes in (1 << 30, 1 << 28, 1 << 20):
        assert not snapshot(driver, size_bytes=size_bytes).freeze
        hold(driver)
    assert snapshot(driver).freeze
    hold(driver)
    assert shares(driver) == {0: 128, 1: 128}


def test_the_donor_freezes_when_another_copy_is_as_large_as_the_one_before(driver: Driver) -> None:
    scale(driver, 2)
    for size_bytes in (1 << 30, 1 << 28, 1 << 28):
        order = snapshot(driver, size_bytes=size_bytes)
        assert (order.freeze, order.recipient, order.partitions) == (False, "ps-1", ((128, 256),))
        hold(driver)
    assert snapshot(driver, size_bytes=1 << 28).freeze
    hold(driver)
    assert shares(driver) == {0: 128, 1: 128}
