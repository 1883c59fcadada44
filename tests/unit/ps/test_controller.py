"""The rules of the ps' controller, without threads: which command follows which, and what a failure changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.ps.controller_shell import PS, Broker, Shell, serving, snapshot
from tests.unit.ps.damage import flip
from tests.unit.ps.example import BATCHES

from elasticdl.ps.controller.commands import (
    CloseCut,
    ConfirmName,
    CountTables,
    DeleteObjects,
    DeleteSnapshot,
    Lane,
    ListGarbage,
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
from elasticdl.shared.errors import FencedError, NoSpaceError, PermanentError, TransientError
from elasticdl.shared.messages.events import (
    ModelInitialised,
    PsStarted,
    SnapshotDamaged,
    SnapshotTaken,
    StepReached,
    StopRequested,
)
from elasticdl.shared.messages.measurements import TableCounted
from elasticdl.shared.messages.registers import PsRegister, encode_register
from elasticdl.shared.model.placement import Placement, Ranges
from elasticdl.shared.names import PodName, new_incarnation
from elasticdl.shared.storage import MemoryStore

HALF: Ranges = ((128, 256),)
PS_1 = PodName("ps-1")


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
        shell.run()
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


@pytest.mark.parametrize("is_saving", [False, True])
def test_a_register_that_can_not_be_read_is_written_again(broker: Broker, shell: Shell, is_saving: bool) -> None:
    shell.push(0, 0)
    if is_saving:
        shell.order(snapshot(1))
        shell.run_until(RegisterSnapshot)
    former = broker.register()
    broker.write(PS, b"garbage", broker.entries[PS].seq)
    shell.post(KeyChanged(name=PS, entry=broker.entries[PS]))
    shell.run()
    assert broker.register().incarnation == shell.incarnation
    assert (broker.register() == former) != is_saving
    shell.push(0, 1)
    shell.order(snapshot(2))
    shell.run()
    (taken,) = [each for each in broker.events(SnapshotTaken) if each.request == 2]
    assert (broker.register().manifest, broker.register().step) == (taken.manifest, 2)


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


def test_a_ps_whose_storage_is_full_stops_the_job_once_and_saves_its_model_as_soon_as_there_is_space(
    broker: Broker, shell: Shell
) -> None:
    shell.push(0, 0)
    shell.order(snapshot(1))
    full = NoSpaceError("disk full: /storage can't be written")
    for _ in range(2):
        shell.run_until(WriteNextObject)
        shell.fail(Lane.STORAGE, full)
        shell.run()
        assert [event.reason for event in broker.events(StopRequested)] == [str(full)]
        assert not [each for each in broker.events(SnapshotTaken) if each.request == 1]
        shell.advance(1.0)
    shell.run()
    (taken,) = [each for each in broker.events(SnapshotTaken) if each.request == 1]
    assert taken.ledgers[0].ledger.step == 1


@pytest.mark.parametrize("is_late", [False, True])
def test_a_register_that_was_stored_although_its_write_failed_is_this_incarnations_own(
    broker: Broker, shell: Shell, *, is_late: bool
) -> None:
    """The broker was away for longer than its client waits, so the acknowledgement was lost for good."""
    shell.push(0, 0)
    shell.order(snapshot(1))
    lost = shell.run_until(RegisterSnapshot)
    if not is_late:
        broker.write(PS, encode_register(lost.register), lost.after)
    shell.fail(Lane.BROKER, TransientError("publish failed for 300 s"))
    shell.run()
    shell.advance(1.0)
    shell.run_until(RegisterSnapshot)
    if is_late:
        broker.write(PS, encode_register(lost.register), lost.after)
    shell.run()
    (taken,) = [each for each in broker.events(SnapshotTaken) if each.request == 1]
    assert broker.register().manifest == taken.manifest != lost.register.manifest


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


def test_snapshots_of_the_timer_count_rows_for_a_small_part_of_the_time(broker: Broker, store: MemoryStore) -> None:
    shell = Shell(broker, store, policy=SnapshotPolicy(interval_s=30.0, first_s=30.0))
    a, b = shell.signature.tables
    shell.signature = replace(shell.signature, tables=(replace(a, min_count=2), b))
    shell.start()
    shell.initialise()
    shell.run()
    counted = []
    for number in range(10):
        shell.push(*BATCHES[number])
        shell.advance(60.0)
        if number == 0:
            shell.run_until(CountTables)
            shell.advance(1.5)
        shell.run()
        counted.append(len(broker.events(TableCounted)))
    assert counted == [1] * 5 + [2, 3, 4, 5, 6], "the first count took 1.5 s, so the next one follows 300 s later"


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
