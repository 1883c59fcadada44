"""The rules of the ps' controller, without threads: which command follows which, and what a failure changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.ps.controller_shell import PS, Broker, Shell
from tests.unit.ps.damage import flip
from tests.unit.ps.example import BATCHES

from elasticdl.ps.controller.commands import (
    CloseCut,
    ConfirmName,
    CutCopy,
    DeleteObjects,
    DeleteSnapshot,
    DropRows,
    Lane,
    ListGarbage,
    LoadNextObject,
    Log,
    PublishEvent,
    RegisterSnapshot,
    StartServing,
    WriteNextObject,
)
from elasticdl.ps.controller.events import KeyChanged, ProcessStarted
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.errors import FencedError, PermanentError, TransientError
from elasticdl.shared.messages.commands import ClosePin, Command, HoldGroup, OpenPin, StopPod, TakeSnapshot
from elasticdl.shared.messages.events import (
    GroupHeld,
    ModelInitialised,
    ModelPinned,
    PsStarted,
    SnapshotDamaged,
    SnapshotTaken,
    StepReached,
)
from elasticdl.shared.messages.registers import PsRegister, encode_register
from elasticdl.shared.model.placement import Placement, Ranges
from elasticdl.shared.names import PodName, new_incarnation
from elasticdl.shared.storage import MemoryStore

HALF: Ranges = ((128, 256),)
PS_1 = PodName("ps-1")


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def shell(broker: Broker, store: MemoryStore) -> Shell:
    """A ps that serves, with snapshot 0 registered."""
    return serving(broker, store)


def serving(broker: Broker, store: MemoryStore, policy: SnapshotPolicy | None = None) -> Shell:
    shell = Shell(broker, store, policy=policy)
    shell.start()
    shell.initialise()
    shell.run()
    return shell


def snapshot(request: int, **facts: object) -> TakeSnapshot:
    return TakeSnapshot(ps=PS, request=request, reason="test", **facts)  # type: ignore[arg-type]


# --- start-up ---------------------------------------------------------------------------------------------------------


def test_a_new_ps_listens_and_announces_itself_before_it_waits_for_the_initial_weights(
    broker: Broker, store: MemoryStore
) -> None:
    shell = Shell(broker, store)
    shell.start()
    assert shell.names() == ["ReadKey", "ClaimName", "ReadKey", "Listen", "PublishEvent", "JoinJob"]
    assert broker.events(PsStarted) == [PsStarted(address="host:1", ledgers=(), restored_from="", claim=1)]


def test_the_initial_weights_are_served_once_they_are_registered_and_announced(
    broker: Broker, store: MemoryStore
) -> None:
    shell = Shell(broker, store)
    shell.start()
    before = len(shell.executed)
    shell.initialise()
    shell.run_until(StartServing)
    names = shell.names(before)
    assert [name for name in names if name != "WriteNextObject"] == [
        "CutSnapshot",
        "RegisterSnapshot",
        "CloseCut",
        "PublishEvent",
        "PublishEvent",
    ]
    assert [type(event) for event in broker.log] == [PsStarted, SnapshotTaken, ModelInitialised]
    assert broker.register().manifest == broker.events(SnapshotTaken)[0].manifest
    with pytest.raises(RefusedError, match="not on the log"):
        shell.push(0, 0)
    shell.run()
    shell.push(0, 0)


def test_a_restored_ps_serves_after_its_start_is_acknowledged(broker: Broker, store: MemoryStore, shell: Shell) -> None:
    shell.push(0, 0)
    shell.order(snapshot(1))
    shell.run()
    successor = Shell(broker, store)
    successor.start()
    expected = ["ReadKey", "ClaimName", "ReadKey", "RecoverShard", "Listen", "PublishEvent", "StartServing", "JoinJob"]
    assert successor.names()[: len(expected)] == expected
    started = broker.events(PsStarted)[-1]
    assert started.restored_from == broker.register().manifest
    assert started.ledgers[0].ledger.step == 1


def test_the_placement_is_adopted_before_the_snapshot_is_restored(broker: Broker, store: MemoryStore) -> None:
    serving(broker, store).publish(Placement.even(1).moved(HALF, to=1, version=2))
    successor = Shell(broker, store)
    successor.start()
    assert successor.names()[2:5] == ["ReadKey", "AdoptPlacement", "RecoverShard"]
    assert [group.partitions for group in broker.events(PsStarted)[-1].ledgers] == [((0, 128),)]


def test_a_damaged_snapshot_is_replaced_on_record_before_the_start_is_announced(
    broker: Broker, store: MemoryStore, shell: Shell
) -> None:
    good = broker.register().manifest
    shell.push(0, 0)
    shell.order(snapshot(1))
    shell.run()
    damaged = broker.register().manifest
    flip(store, damaged)
    successor = Shell(broker, store)
    successor.start()
    assert [type(event) for event in broker.log[-2:]] == [SnapshotDamaged, PsStarted]
    (told,) = broker.events(SnapshotDamaged)
    assert (told.snapshot, told.instead) == (damaged, good)
    names = successor.names()
    assert names.index("RegisterSnapshot") < names.index("Listen")
    assert (broker.register().manifest, broker.register().older) == (good, ())


def test_a_claim_that_another_incarnation_wins_ends_the_process(broker: Broker, store: MemoryStore) -> None:
    shell = Shell(broker, store)
    shell.post(ProcessStarted())
    shell.execute(Lane.BROKER)
    broker.write(PS, encode_register(PsRegister(address="", incarnation=new_incarnation())), 0)
    with pytest.raises(FencedError):
        shell.execute(Lane.BROKER)
    assert not shell.listens


# --- fencing ----------------------------------------------------------------------------------------------------------


def test_a_ps_ends_when_its_register_has_another_owner_and_does_nothing_more(broker: Broker, shell: Shell) -> None:
    own = broker.entries[PS]
    shell.post(KeyChanged(name=PS, entry=own))
    other = encode_register(PsRegister(address="", incarnation=new_incarnation()))
    shell.post(KeyChanged(name=PS, entry=KeyValueEntry(value=other, seq=own.seq - 1)))
    shell.post(KeyChanged(name=PS_1, entry=KeyValueEntry(value=other, seq=own.seq + 1)))
    with pytest.raises(FencedError, match="taken over"):
        shell.post(KeyChanged(name=PS, entry=KeyValueEntry(value=other, seq=own.seq + 1)))
    shell.order(snapshot(1))
    assert shell.run() == []


def test_a_fenced_ps_neither_announces_its_snapshot_nor_deletes_anything(
    broker: Broker, store: MemoryStore, shell: Shell
) -> None:
    shell.push(0, 0)
    shell.order(snapshot(1))
    shell.run_until(RegisterSnapshot)
    Shell(broker, store).start()
    announced = len(broker.events(SnapshotTaken))
    cut = shell.core.shard.tables[0].cuts if shell.core.shard else []
    shell.execute(Lane.BROKER)
    assert isinstance(shell.run_until(CloseCut), CloseCut)
    with pytest.raises(FencedError):
        shell.run()
    assert cut == []
    assert len(broker.events(SnapshotTaken)) == announced


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_registered_before_its_rows_count_as_saved_and_before_it_is_announced(shell: Shell) -> None:
    shell.push(0, 0)
    before = len(shell.executed)
    shell.order(snapshot(1))
    shell.run()
    names = [name for name in shell.names(before) if name != "WriteNextObject"]
    assert names == ["CutSnapshot", "RegisterSnapshot", "CloseCut", "PublishEvent", "DropRows"]
    closed = [each for each in shell.executed[before:] if isinstance(each, CloseCut)]
    assert [each.finished for each in closed] == [True]


@pytest.mark.parametrize("kind", [WriteNextObject, RegisterSnapshot])
def test_a_snapshot_that_fails_is_tried_again_later_under_another_name(
    broker: Broker, store: MemoryStore, shell: Shell, kind: type
) -> None:
    shell.push(0, 0)
    former, before = broker.register(), {info.uri for info in store.list("memory://storage")}
    shell.order(snapshot(1))
    lane = shell.run_until(kind).lane
    shell.fail(lane, TransientError("away"))
    closed = shell.run_until(CloseCut)
    assert not closed.finished, "the rows of the snapshot that failed are still to be saved"
    shell.run()
    assert broker.register() == former
    left = {info.uri for info in store.list("memory://storage")} - before
    shell.advance(0.5)
    assert shell.run() == []
    shell.advance(0.5)
    shell.run()
    (taken,) = [each for each in broker.events(SnapshotTaken) if each.request == 1]
    assert broker.register().manifest == taken.manifest
    assert taken.ledgers[0].ledger.step == 1
    assert taken.manifest not in left


def test_an_announcement_that_fails_is_repeated_without_another_snapshot(broker: Broker, shell: Shell) -> None:
    shell.push(0, 0)
    shell.order(snapshot(1))
    while not isinstance(shell.run_until(PublishEvent).event, SnapshotTaken):
        shell.execute(Lane.BROKER)
    shell.fail(Lane.BROKER, TransientError("away"))
    shell.run()
    manifest = broker.register().manifest
    shell.advance(1.0)
    shell.run()
    assert [each.manifest for each in broker.events(SnapshotTaken) if each.request == 1] == [manifest]
    assert broker.register().manifest == manifest


def test_a_repeated_request_gets_the_same_answer_unless_that_snapshot_is_damaged(broker: Broker, shell: Shell) -> None:
    shell.push(0, 0)
    shell.order(snapshot(1))
    shell.run()
    shell.push(0, 1)
    shell.order(snapshot(1))
    shell.run()
    first, repeated = broker.events(SnapshotTaken)[-2:]
    assert repeated == first
    shell.order(snapshot(1, damaged=first.manifest))
    shell.run()
    replaced = broker.events(SnapshotTaken)[-1]
    assert replaced.manifest != first.manifest
    assert replaced.ledgers[0].ledger.step == 2
    assert first.manifest not in broker.register().older


def test_an_error_that_is_not_transient_ends_the_process(shell: Shell) -> None:
    shell.push(0, 0)
    shell.order(snapshot(1))
    shell.run_until(WriteNextObject)
    shell.fail(Lane.STORAGE, PermanentError("no such bucket"))
    with pytest.raises(PermanentError, match="bucket"):
        shell.run()


def test_the_timer_takes_snapshots_of_what_has_changed_and_the_pauses_double(
    broker: Broker, store: MemoryStore
) -> None:
    shell = serving(broker, store, SnapshotPolicy(interval_s=30.0, first_s=5.0))
    assert shell.timers == {"snapshots": 10.0}, "after snapshot 0 comes the second pause"
    shell.advance(10.0)
    shell.run()
    assert len(broker.events(SnapshotTaken)) == 1, "nothing was absorbed"
    shell.push(0, 0)
    shell.advance(19.0)
    assert shell.run() == []
    shell.advance(1.0)
    shell.run()
    assert [each.ledgers[0].ledger.step for each in broker.events(SnapshotTaken)] == [0, 1]
    assert shell.timers == {"snapshots": 60.0}


def test_while_pushes_wait_for_a_move_the_timer_takes_no_snapshot(broker: Broker, store: MemoryStore) -> None:
    shell = serving(broker, store, SnapshotPolicy(interval_s=1.0))
    shell.push(0, 0)
    shell.core.freeze(2)
    shell.advance(5.0)
    assert shell.run() == []
    shell.publish(Placement.even(1).moved((), to=0, version=2))
    shell.run()
    assert len(broker.events(SnapshotTaken)) == 2


def test_push_threads_report_only_the_step_at_which_something_is_due(broker: Broker, store: MemoryStore) -> None:
    shell = Shell(broker, store, policy=SnapshotPolicy(interval_s=0.0, steps=4), evaluation_steps=3)
    assert not any(shell.controller.is_notable(step) for step in (1, 2, 4, 5)), "nothing is planned yet"
    shell.start()
    shell.initialise()
    shell.run()
    assert [step for step in range(1, 8) if shell.controller.is_notable(step)] == [3, 4, 5, 6, 7]
    for task, batch in BATCHES[:4]:
        shell.push(task, batch)
    assert not shell.controller.is_notable(5), "one report is enough"
    shell.run()
    assert [each.step for each in broker.events(StepReached)] == [3]
    assert broker.events(SnapshotTaken)[-1].ledgers[0].ledger.step == 4
    assert shell.controller.is_notable(8)
    assert not shell.controller.is_notable(7)


def test_obsolete_snapshots_are_deleted_after_the_new_one_is_registered(broker: Broker, store: MemoryStore) -> None:
    shell = serving(broker, store, SnapshotPolicy(interval_s=0.0, chain_max=1, chains_kept=1))
    for number, (task, batch) in enumerate(BATCHES[:2], start=1):
        shell.push(task, batch)
        shell.order(snapshot(number))
        shell.run()
    shell.push(*BATCHES[2])
    shell.order(snapshot(3))
    deleting = shell.run_until(DeleteSnapshot)
    assert deleting.uri not in (broker.register().manifest, *broker.register().older)
    shell.fail(Lane.STORAGE, TransientError("away"))
    shell.run()
    assert store.info(deleting.uri), "a snapshot that can't be deleted does no harm"
    shell.push(*BATCHES[3])
    shell.order(snapshot(4))
    assert shell.run().count("DeleteSnapshot") == 2, "the deletion is tried again"


# --- garbage of former incarnations -----------------------------------------------------------------------------------


def test_garbage_is_deleted_only_after_the_name_is_confirmed(broker: Broker, store: MemoryStore, shell: Shell) -> None:
    shell.push(0, 0)
    shell.order(snapshot(1))
    shell.run()
    manifest = broker.register().manifest
    store.write(f"{manifest.rsplit('/', 2)[0]}/half-written-000001/dense-0", b"left by a former process")
    successor = Shell(broker, store)
    successor.start()
    names = successor.names()
    order = ["ListGarbage", "ConfirmName", "DeleteObjects"]
    assert [name for name in names if name in order] == order
    assert not list(store.list(f"{manifest.rsplit('/', 2)[0]}/half-written"))


def test_a_ps_that_is_fenced_while_it_lists_garbage_deletes_nothing(
    broker: Broker, store: MemoryStore, shell: Shell
) -> None:
    late = Shell(broker, store)
    late.post(ProcessStarted())
    late.run_until(ConfirmName)
    Shell(broker, store).start()
    before = {info.uri for info in store.list("memory://storage")}
    with pytest.raises(FencedError):
        late.run()
    assert "DeleteObjects" not in late.names()
    assert {info.uri for info in store.list("memory://storage")} == before


@pytest.mark.parametrize("kind", [ListGarbage, DeleteObjects])
def test_garbage_that_can_not_be_deleted_does_no_harm(
    broker: Broker, store: MemoryStore, shell: Shell, kind: type
) -> None:
    successor = Shell(broker, store)
    successor.post(ProcessStarted())
    successor.run_until(kind)
    successor.fail(Lane.STORAGE, TransientError("away"))
    successor.order(snapshot(1))
    successor.run()
    assert broker.events(SnapshotTaken)[-1].request == 1
    warnings = [each for each in successor.executed if isinstance(each, Log) and each.level == "warning"]
    assert ["garbage" in each.message for each in warnings] == [True]


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


def test_the_second_copy_has_only_what_changed_and_the_recipient_loads_only_that(
    broker: Broker, store: MemoryStore
) -> None:
    donor, recipient = moving(broker, store)
    recipient.order(hold(copied(donor, 1, 2, freeze=False), 2))
    first = recipient.run().count("LoadNextObject")
    recipient.order(hold(copied(donor, 2, 2, freeze=True), 2))
    assert recipient.run().count("LoadNextObject") < first, "nothing changed between the copies"
    assert len(broker.events(GroupHeld)) == 2


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
