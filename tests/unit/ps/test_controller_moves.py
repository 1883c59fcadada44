"""The rules of the ps' controller about orders and moves, without threads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.ps.controller_shell import PS, Broker, Shell, serving, snapshot
from tests.unit.ps.damage import delete, flip

from elasticdl.ps.controller.commands import (
    CutCopy,
    DropRows,
    Lane,
    LoadNextObject,
    PublishEvent,
)
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.shared.errors import PermanentError, TransientError
from elasticdl.shared.messages.commands import ClosePin, Command, HoldGroup, OpenPin, StopPod, TakeSnapshot
from elasticdl.shared.messages.events import (
    GroupHeld,
    ModelPinned,
    PsStarted,
    SnapshotDamaged,
    SnapshotTaken,
)
from elasticdl.shared.model.manifests import read_manifest
from elasticdl.shared.model.placement import Placement, Ranges
from elasticdl.shared.names import PodName
from elasticdl.shared.storage import MemoryStore

HALF: Ranges = ((128, 256),)
PS_1 = PodName("ps-1")


# --- orders -----------------------------------------------------------------------------------------------------------


def test_orders_for_others_and_about_later_versions_are_refused(shell: Shell) -> None:
    hold = HoldGroup(ps=PS, move=4, partitions=HALF, manifest="", donor=PS_1, version=3)
    early: list[Command] = [snapshot(1, version=2), hold, OpenPin(ps=PS, evaluation=1, version=2)]
    for order in early:
        with pytest.raises(PermanentError, match="version"):
            shell.order(order)
    foreign: list[Command] = [StopPod(pod=PS, reason="test"), TakeSnapshot(ps=PS_1, request=1, reason="test")]
    for order in foreign:
        with pytest.raises(PermanentError, match="ps-0 can't"):
            shell.order(order)


def test_pins_need_a_model_and_are_announced(broker: Broker, store: MemoryStore) -> None:
    shell = Shell(broker, store)
    shell.start()
    with pytest.raises(RefusedError, match="not initialised"):
        shell.order(OpenPin(ps=PS, evaluation=1))
    shell.initialise()
    shell.run()
    shell.order(OpenPin(ps=PS, evaluation=1))
    shell.run()
    assert broker.events(ModelPinned) == [ModelPinned(evaluation=1, step=0)]
    shell.order(ClosePin(ps=PS, evaluation=1))
    assert shell.run()[0] == "UnpinModel"


def test_an_order_without_a_model_is_dropped_and_the_next_one_is_executed(broker: Broker, store: MemoryStore) -> None:
    serving(broker, store)
    empty = Shell(broker, store, ps=PS_1)
    empty.core.placement = Placement.even(1)
    empty.start()
    empty.order(TakeSnapshot(ps=PS_1, request=1, reason="test"))
    manifest = broker.register().manifest
    empty.order(HoldGroup(ps=PS_1, move=2, partitions=HALF, manifest=manifest, donor=PS, version=1))
    empty.run()
    assert broker.events(SnapshotTaken)[-1].request == 0
    assert broker.events(GroupHeld)[-1].failure == ""


# --- moves ------------------------------------------------------------------------------------------------------------


def moving(broker: Broker, store: MemoryStore) -> tuple[Shell, Shell]:
    """A donor with a model, and a recipient that has nothing yet."""
    donor, recipient = serving(broker, store), Shell(broker, store, ps=PS_1)
    recipient.start()
    donor.push(0, 0)
    return donor, recipient


def copied(donor: Shell, request: int, move: int, *, freeze: bool) -> str:
    order = snapshot(request, move=move, freeze=freeze, recipient=PS_1, partitions=HALF)
    donor.order(order)
    donor.run()
    return str(donor.broker.events(SnapshotTaken)[-1].manifest)


def hold(manifest: str, move: int) -> HoldGroup:
    return HoldGroup(ps=PS_1, move=move, partitions=HALF, manifest=manifest, donor=PS, version=move - 1)


def test_a_group_is_held_after_it_is_registered_and_served_after_the_placement_says_so(
    broker: Broker, store: MemoryStore
) -> None:
    donor, recipient = moving(broker, store)
    recipient.order(hold(copied(donor, 1, 2, freeze=True), 2))
    before = len(recipient.executed)
    while not isinstance(recipient.run_until(PublishEvent).event, GroupHeld):
        recipient.execute(Lane.BROKER)
    assert recipient.names(before)[-2:] == ["WriteObject", "RegisterSnapshot"]
    recipient.run()
    (held,) = broker.events(GroupHeld)
    assert (held.failure, held.ledgers[0].ledger.step) == ("", 1)
    with pytest.raises(RefusedError, match="moving"):
        donor.push(0, 1)
    placement = Placement.even(1).moved(HALF, to=1, version=2)
    donor.publish(placement)
    donor.run()
    recipient.publish(placement)
    recipient.run()
    assert [group.partitions for group in recipient.core.shard.groups] == [HALF]  # type: ignore[union-attr]
    donor.push(0, 1)
    recipient.push(0, 1)


def test_pushes_are_refused_before_the_last_copy_is_cut(broker: Broker, store: MemoryStore) -> None:
    donor, _ = moving(broker, store)
    donor.order(snapshot(1, move=2, freeze=True, recipient=PS_1, partitions=HALF))
    donor.run_until(CutCopy)
    with pytest.raises(RefusedError, match="moving"):
        donor.push(0, 1)


def test_a_repeated_order_does_not_replace_what_is_held_by_an_earlier_copy(broker: Broker, store: MemoryStore) -> None:
    donor, recipient = moving(broker, store)
    first = hold(copied(donor, 1, 2, freeze=False), 2)
    recipient.order(first)
    recipient.run()
    donor.push(0, 1)
    recipient.order(hold(copied(donor, 2, 2, freeze=True), 2))
    recipient.run()
    recipient.order(first)
    recipient.run()
    steps = [held.ledgers[0].ledger.step for held in broker.events(GroupHeld)]
    assert steps == [1, 2, 1]
    assert recipient.core.shard is not None
    assert [group.ledger.step for group in recipient.core.shard.held] == [2]


def test_the_second_copy_has_only_what_changed_and_the_recipient_loads_only_that(
    broker: Broker, store: MemoryStore
) -> None:
    donor, recipient = moving(broker, store)
    recipient.order(hold(copied(donor, 1, 2, freeze=False), 2))
    first = recipient.run().count("LoadNextObject")
    recipient.order(hold(copied(donor, 2, 2, freeze=True), 2))
    assert recipient.run().count("LoadNextObject") < first, "nothing changed between the copies"
    assert len(broker.events(GroupHeld)) == 2


def test_what_is_held_does_not_build_on_a_snapshot_that_was_deleted_during_the_move(
    broker: Broker, store: MemoryStore
) -> None:
    donor, recipient = moving(broker, store)
    recipient.order(hold(copied(donor, 1, 2, freeze=False), 2))
    recipient.run()
    deleted = broker.register(PS_1).manifest
    delete(store, deleted)
    donor.push(0, 1)
    recipient.order(hold(copied(donor, 2, 2, freeze=True), 2))
    recipient.run()
    register = broker.register(PS_1)
    assert read_manifest(store, register.manifest).base == ""
    assert deleted not in (register.manifest, *register.older)
    (told,) = broker.events(SnapshotDamaged)
    assert (told.snapshot, told.instead) == (deleted, register.manifest)
    recipient.publish(Placement.even(1).moved(HALF, to=1, version=2))
    recipient.run()
    successor = Shell(broker, store, ps=PS_1)
    successor.core.adopt(Placement.even(1).moved(HALF, to=1, version=2))
    successor.start()
    (group,) = broker.events(PsStarted)[-1].ledgers
    assert (group.partitions, group.ledger.step) == (HALF, 2)


def test_a_copy_that_is_damaged_fails_the_move_and_not_the_recipient(broker: Broker, store: MemoryStore) -> None:
    donor, recipient = moving(broker, store)
    manifest = copied(donor, 1, 2, freeze=True)
    flip(store, manifest)
    recipient.order(hold(manifest, 2))
    recipient.run()
    (held,) = broker.events(GroupHeld)
    assert "damaged" in held.failure
    assert "RegisterSnapshot" not in recipient.names()


def test_a_load_that_the_store_interrupts_is_tried_again(broker: Broker, store: MemoryStore) -> None:
    donor, recipient = moving(broker, store)
    recipient.order(hold(copied(donor, 1, 2, freeze=True), 2))
    recipient.run_until(LoadNextObject)
    recipient.fail(Lane.STORAGE, TransientError("away"))
    recipient.run()
    assert broker.events(GroupHeld) == []
    recipient.advance(1.0)
    recipient.run()
    assert broker.events(GroupHeld)[0].failure == ""


def test_a_move_that_is_over_is_neither_copied_nor_held(broker: Broker, store: MemoryStore) -> None:
    donor, recipient = moving(broker, store)
    manifest = copied(donor, 1, 2, freeze=False)
    given_up = Placement.even(1).moved((), to=0, version=2)
    for each in (donor, recipient):
        each.publish(given_up)
        each.run()
    announced = len(broker.log)
    donor.order(snapshot(2, move=2, freeze=True, recipient=PS_1, partitions=HALF))
    recipient.order(hold(manifest, 2))
    donor.run()
    recipient.run()
    assert len(broker.log) == announced
    assert "LoadNextObject" not in recipient.names()
    donor.push(0, 1)


def test_rows_are_dropped_until_something_else_is_due(broker: Broker, store: MemoryStore) -> None:
    donor, _ = moving(broker, store)
    donor.publish(Placement.even(1).moved(HALF, to=1, version=2))
    donor.run_until(DropRows)
    donor.order(snapshot(1))
    names = donor.run()
    assert names[:2] == ["DropRows", "CutSnapshot"]
    assert names[-1] == "DropRows"
    assert not donor.core.has_undropped


def test_a_ps_that_is_given_what_it_does_not_have_ends(broker: Broker, store: MemoryStore) -> None:
    _, recipient = moving(broker, store)
    recipient.publish(Placement.even(1).moved(HALF, to=1, version=2))
    with pytest.raises(TransientError, match="version 2"):
        recipient.run()


def test_a_snapshot_of_another_plan_can_not_be_held(broker: Broker, store: MemoryStore) -> None:
    donor, recipient = moving(broker, store)
    recipient.core.plan = replace(recipient.core.plan, seed=8)
    recipient.order(hold(copied(donor, 1, 2, freeze=True), 2))
    recipient.run()
    assert "plan" in broker.events(GroupHeld)[0].failure
