"""The rules of a push: exactly once, in order, whole or not at all."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ps.cores import core_of, initialise, wire_push
from tests.unit.ps.example import (
    BATCHES,
    DENSE_SIZE,
    MOVING_AVERAGE,
    PLAN,
    ROWS_A,
    ROWS_B,
    TRAINABLE_SIZE,
    signature,
)

from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.regrouping import joined, reduced
from elasticdl.shared.errors import InvariantError, ProtocolError
from elasticdl.shared.job.ledger import Ledger, LedgerRecord, Verdict
from elasticdl.shared.job.plan import EPOCHS_MAX
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.model.placement import Placement, Ranges
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import Floats, Push, PushVerdict, RefusalKind


def state(core: PsCore) -> tuple[LedgerRecord, int, bytes, bytes]:
    """Everything that a push may change, slots apart (they show in the next weights)."""
    tables = (
        messages.TableIds(table=0, width=4, ids=np.arange(ROWS_A)),
        messages.TableIds(table=1, width=2, ids=np.arange(ROWS_B)),
    )
    request = messages.Pull(plan=PLAN.fingerprint, placement_version=1, pin=0, dense=True, tables=tables)
    pulled = core.pull(request)
    assert core.shard is not None
    return core.shard.groups[0].ledger.record(), pulled.iteration, pulled.dense.tobytes(), pulled.rows.tobytes()


@settings(max_examples=50, deadline=None)
@given(
    order=st.permutations(range(8)),
    noise=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20),
    optimizer=st.sampled_from(["sgd", "adam"]),
    grads_to_wait=st.integers(1, 3),
)
def test_any_order_of_attempts_ends_in_the_state_of_one_in_order_run(
    order: list[int], noise: list[tuple[int, int]], optimizer: str, grads_to_wait: int
) -> None:
    """Tasks 0 and 1, interleaved as ``order`` says; before each batch arbitrary others are pushed."""
    policy = UpdatePolicy(grads_to_wait=grads_to_wait)
    core, reference = core_of(optimizer, policy=policy), core_of(optimizer, policy=policy)
    done = {0: 0, 1: 0}
    for position, pick in enumerate(order):
        for at, other in noise:
            if at == position:
                task, batch = divmod(other, 4)
                if batch != done[task]:
                    expected = PushVerdict.DUPLICATE if batch < done[task] else PushVerdict.GAP
                    answer = core.push(wire_push(task, batch))
                    assert (answer.verdict, answer.next_batch) == (expected, done[task])
        task = pick // 4
        assert core.push(wire_push(task, done[task])).verdict is PushVerdict.APPLIED
        reference.push(wire_push(task, done[task]))
        done[task] += 1
    assert state(core) == state(reference)


def test_sgd_equals_numpy() -> None:
    core = core_of("sgd")
    _, _, before_dense, before_rows = state(core)
    dense = np.frombuffer(before_dense, np.float32).copy()
    rows = np.frombuffer(before_rows, np.float32).copy()
    a, b = rows[: ROWS_A * 4].reshape(ROWS_A, 4), rows[ROWS_A * 4 :].reshape(ROWS_B, 2)
    for task, batch in BATCHES:
        push = wire_push(task, batch)
        core.push(push)
        dense[:18] -= np.float32(0.1) * push.dense[:18]
        dense[18:21] = MOVING_AVERAGE.momentum * dense[18:21] + push.statistics
        a[push.tables[0].ids] -= np.float32(0.1) * push.tables[0].gradients
        b[push.tables[1].ids] -= np.float32(0.1) * push.tables[1].gradients
    record, iteration, after_dense, after_rows = state(core)
    np.testing.assert_allclose(np.frombuffer(after_dense, np.float32), dense, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.frombuffer(after_rows, np.float32), rows, rtol=1e-5, atol=1e-5)
    assert (record.step, record.records, record.finished) == (len(BATCHES), PLAN.records, ((0, PLAN.tasks),))
    assert iteration == len(BATCHES)


def test_a_push_without_gradients_moves_the_layer_state_alone() -> None:
    core = core_of("sgd")
    _, _, before, rows = state(core)
    push = replace(wire_push(0, 0), empty=True, dense=messages.NO_FLOATS, tables=())
    assert core.push(push).verdict is PushVerdict.APPLIED
    expected = np.frombuffer(before, np.float32).copy()
    expected[18:21] = MOVING_AVERAGE.momentum * expected[18:21] + push.statistics
    record, iteration, after, rows_after = state(core)
    np.testing.assert_allclose(np.frombuffer(after, np.float32), expected, rtol=1e-6)
    assert (record.step, iteration, rows_after) == (1, 0, rows)


def with_nan(values: Floats) -> Floats:
    values = values.copy()
    values.reshape(-1)[0] = np.nan
    return values


def test_what_is_not_finite_changes_nothing() -> None:
    good = wire_push(0, 0)
    spoiled = [
        replace(good, dense=with_nan(good.dense)),
        replace(good, statistics=with_nan(good.statistics)),
        replace(
            good,
            tables=(good.tables[0], replace(good.tables[1], gradients=with_nan(good.tables[1].gradients))),
        ),
    ]
    for push in spoiled:
        core = core_of()
        before = state(core)
        answer = core.push(push)
        assert (answer.verdict, answer.next_batch) == (PushVerdict.NOT_FINITE, 0)
        assert answer.message
        assert state(core) == before


def test_a_push_that_does_not_fit_is_refused_whole() -> None:
    good = wire_push(0, 0)
    table = good.tables[0]
    wrong = [
        replace(good, task=PLAN.tasks_per_epoch * EPOCHS_MAX),
        replace(good, batches=good.batches + 1),
        replace(good, batch=good.batches),
        replace(good, records=good.records + 1),
        replace(good, dense=good.dense[1:]),
        replace(good, statistics=good.statistics[1:]),
        replace(good, tables=(replace(table, table=2),)),
        replace(good, tables=(table, table)),
        replace(good, tables=(good.tables[1], replace(table, ids=table.ids + ROWS_A))),
        replace(good, empty=True),
        replace(good, rate=float("nan")),
    ]
    core = core_of()
    before = state(core)
    for push in wrong:
        with pytest.raises(ProtocolError):
            core.push(push)
    assert state(core) == before


def test_refusals() -> None:
    core = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy())
    push = wire_push(0, 0)
    assert kind(core, push) is RefusalKind.NOT_INITIALISED
    core.initialise(initialise())
    assert kind(core, push) is RefusalKind.NOT_READY
    core.start_serving()
    assert kind(core, replace(push, plan="another")) is RefusalKind.USER
    assert kind(core, replace(push, placement_version=2)) is RefusalKind.NOT_READY
    assert kind(core, replace(push, placement_version=0)) is RefusalKind.MOVED
    assert core.push(push).verdict is PushVerdict.APPLIED


def kind(core: PsCore, push: Push) -> RefusalKind:
    with pytest.raises(RefusedError) as caught:
        core.push(push)
    return caught.value.refusal.kind


def test_a_second_model_is_refused_by_what_differs() -> None:
    core = core_of("adam")
    assert not core.initialise(initialise("adam")).first
    with pytest.raises(RefusedError, match="optimizer differ"):
        core.initialise(initialise("sgd"))


def test_an_empty_push_is_absorbed_without_an_update() -> None:
    core = core_of()
    _, _, dense, rows = state(core)
    core.push(wire_push(0, 0, empty=True))
    record, iteration, dense_after, rows_after = state(core)
    assert (record.step, iteration) == (1, 0)
    assert (dense_after, rows_after) == (dense, rows)


def test_accumulated_gradients_wait_for_the_flush() -> None:
    core, plain = core_of("sgd", policy=UpdatePolicy(grads_to_wait=2)), core_of("sgd")
    untouched = state(core)
    core.push(wire_push(0, 0))
    waiting = state(core)
    assert waiting[3] == untouched[3]
    assert core.shard is not None
    core.shard.flush()
    plain.push(wire_push(0, 0))
    assert state(core) == state(plain)


def test_nothing_is_flushed_while_batches_will_follow() -> None:
    core = core_of("sgd", policy=UpdatePolicy(grads_to_wait=4))
    for task, batch in BATCHES[:-1]:
        core.push(wire_push(task, batch))
    assert core.shard is not None
    waiting = state(core)
    assert not core.changed_since(core.shard.versions, flush=True)
    core.cut(dirty_only=False, flush=True).close()
    assert state(core) == waiting, "the order was for a former life that had everything"


def test_what_was_flushed_is_another_state_than_before_the_flush() -> None:
    core = core_of("sgd", policy=UpdatePolicy(grads_to_wait=4))
    for task, batch in BATCHES:
        core.push(wire_push(task, batch))
    assert core.shard is not None
    before = core.shard.versions
    assert not core.changed_since(before, flush=False)
    assert core.changed_since(before, flush=True)
    core.cut(dirty_only=False, flush=True).close()
    assert core.changed_since(before, flush=True), "the cut was not saved: it has to be made again"
    assert not core.changed_since(core.shard.versions, flush=True)


def test_a_stale_push_moves_less() -> None:
    scaled, plain = core_of("sgd", policy=UpdatePolicy(staleness_scaled_rate=True)), core_of("sgd")
    for core in (scaled, plain):
        for batch in range(3):
            core.push(replace(wire_push(0, batch), base_iteration=batch))
    assert state(scaled) == state(plain)
    before = np.frombuffer(state(plain)[2], np.float32)
    for core in (scaled, plain):
        core.push(replace(wire_push(1, 0), base_iteration=1))  # two updates since its pull
    moved, moved_plain = (np.frombuffer(state(core)[2], np.float32)[:18] - before[:18] for core in (scaled, plain))
    np.testing.assert_allclose(moved * 2, moved_plain, rtol=1e-3, atol=1e-6)


def test_a_scaled_learning_rate_moves_more() -> None:
    scaled, plain = core_of("sgd", policy=UpdatePolicy(learning_rate_scale=2.0)), core_of("sgd")
    before = np.frombuffer(state(plain)[2], np.float32)
    for core in (scaled, plain):
        core.push(wire_push(0, 0))
    moved, moved_plain = (np.frombuffer(state(core)[2], np.float32)[:18] - before[:18] for core in (scaled, plain))
    np.testing.assert_allclose(moved, 2 * moved_plain, rtol=1e-5, atol=1e-7)
    assert np.abs(moved_plain).max() > 1e-3


def test_the_answer_to_a_push_says_its_staleness() -> None:
    core = core_of("sgd")
    assert core.push(wire_push(0, 0)).staleness == 0
    assert core.push(wire_push(0, 1)).staleness == 1
    assert core.push(replace(wire_push(0, 2), base_iteration=2)).staleness == 0
    assert core.push(wire_push(0, 2)).staleness is None, "a duplicate"
    assert core.push(wire_push(1, 0, empty=True)).staleness is None, "it has no gradient"
    assert core.push(wire_push(1, 1)).staleness == 3


def test_staleness_counts_updates_and_not_pushes() -> None:
    core = core_of("sgd", policy=UpdatePolicy(grads_to_wait=2))
    assert [core.push(wire_push(0, batch)).staleness for batch in range(4)] == [0, 0, 1, 1]


def test_a_pin_shows_the_state_at_which_it_was_opened() -> None:
    core = core_of()
    core.push(wire_push(0, 0))
    pull = messages.Pull(
        plan=PLAN.fingerprint,
        placement_version=1,
        pin=5,
        dense=True,
        tables=(messages.TableIds(table=0, width=4, ids=np.arange(ROWS_A)),),
    )
    with pytest.raises(RefusedError, match="not pinned"):
        core.pull(pull)
    pinned = state(core)
    assert core.open_pin(5) == 1
    core.push(wire_push(0, 1))
    assert core.open_pin(5) == 1
    got = core.pull(pull)
    assert (got.step, got.iteration) == (1, 1)
    assert (got.dense.size, got.rows.size) == (DENSE_SIZE, ROWS_A * 4)
    assert (got.dense.tobytes(), got.rows.tobytes()) == (pinned[2], pinned[3][: got.rows.nbytes])
    core.close_pin(4)
    core.close_pin(5)
    with pytest.raises(RefusedError, match="not pinned"):
        core.pull(pull)


def test_an_evaluation_is_pinned_once() -> None:
    core = core_of()
    core.push(wire_push(0, 0))
    assert core.open_pin(4) == 1
    core.push(wire_push(0, 1))
    assert core.open_pin(3) is None  # The order of an earlier evaluation, repeated.
    assert core.open_pin(4) == 1
    core.close_pin(4)
    assert core.open_pin(4) is None
    assert core.open_pin(5) == 2


def test_an_error_while_applying_is_a_bug_and_ends_service() -> None:
    class BrokenLedger(Ledger):
        def absorb(self, task: TaskId, batch: int, batches: int, records: int, checksum: int) -> Verdict:
            raise IndexError("planted")

    core = core_of()
    assert core.shard is not None
    core.shard.groups[0].ledger = BrokenLedger()
    with pytest.raises(InvariantError, match="task 0, batch 0"):
        core.push(wire_push(0, 0))
    assert kind(core, wire_push(0, 0)) is RefusalKind.NOT_READY


# --- synchronous training -------------------------------------------------------------------------------------------


def synchronous(optimizer: str = "adam") -> PsCore:
    return core_of(optimizer, policy=UpdatePolicy(rounds=Rounds(plan=PLAN, tasks_per_cohort=2)))


def pull_for(core: PsCore, task: int, batch: int) -> messages.PullReply:
    request = messages.Pull(
        plan=PLAN.fingerprint, placement_version=1, pin=0, dense=True, tables=(), batch=(task, batch)
    )
    return core.pull(request)


def concatenated(task: int, pushes: list[Push], power: int) -> Push:
    """The push of one process that computes the mean loss over the records of several batches."""
    records = np.array([push.records for push in pushes], np.float32)
    shares = records / records.sum()
    tables, repeated = [], []
    for number, count in ((0, ROWS_A), (1, ROWS_B)):
        width = next(table.gradients.shape[1] for push in pushes for table in push.tables if table.table == number)
        mean, magnitudes = np.zeros((2, count, width), np.float32)
        for push, share in zip(pushes, shares, strict=True):
            own = np.zeros((count, width), np.float32)
            for table in push.tables:
                if table.table == number:
                    mean[table.ids] += share * table.gradients
                    own[table.ids] = np.abs(table.gradients) ** power
            for table in push.magnitudes:
                if table.table == number:
                    own[table.ids] = table.gradients
            magnitudes += share**power * own
        ids = np.unique(np.concatenate([t.ids for push in pushes for t in push.tables if t.table == number]))
        tables.append(messages.TableGradients(table=number, ids=ids, gradients=mean[ids]))
        repeated.append(messages.TableGradients(table=number, ids=ids, gradients=magnitudes[ids]))
    gradients = np.stack([push.dense for push in pushes])
    dense = np.concatenate([shares @ gradients[:, :TRAINABLE_SIZE], shares**power @ gradients[:, TRAINABLE_SIZE:]])
    statistics = shares @ np.stack([push.statistics for push in pushes])
    return replace(
        pushes[0], dense=dense, statistics=statistics, tables=tuple(tables), magnitudes=tuple(repeated if power else ())
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam", "adamax"])
def test_an_update_equals_that_of_the_concatenated_batch(optimizer: str) -> None:
    core, reference = synchronous(optimizer), core_of(optimizer)
    power = signature(optimizer).optimizer.power
    for batch in range(PLAN.batches_of(TaskId(0))):
        pushes = [wire_push(task, batch) for task in (0, 1) if batch < PLAN.batches_of(TaskId(task))]
        for push in reversed(pushes):
            assert core.push(push).verdict is PushVerdict.APPLIED
        assert reference.push(concatenated(0, pushes, power)).verdict is PushVerdict.APPLIED
    _, iterations, dense, rows = state(core)
    _, expected_iterations, expected_dense, expected_rows = state(reference)
    assert iterations == expected_iterations
    np.testing.assert_allclose(np.frombuffer(dense, np.float32), np.frombuffer(expected_dense, np.float32), atol=1e-6)
    np.testing.assert_allclose(np.frombuffer(rows, np.float32), np.frombuffer(expected_rows, np.float32), atol=1e-6)


def test_an_incomplete_round_survives_being_taken_apart_and_put_together() -> None:
    """As a move does with a group."""
    core, untouched = synchronous(), synchronous()
    for one in (core, untouched):
        one.push(wire_push(0, 0))
    assert core.shard and untouched.shard
    variables = core.shard.signature.dense
    cut = core.shard.groups[0].cut()
    ((start, end),) = cut.partitions
    third = (end - start) // 3
    parts: list[Ranges] = [((start, third),), ((third, third + 1), (2 * third, end)), ((third + 1, 2 * third),)]
    again = joined([reduced(cut, partitions, variables) for partitions in parts], variables)
    core.shard.groups[0].load(again)
    for one in (core, untouched):
        one.push(wire_push(1, 0))
    assert state(core) == state(untouched)


def test_weights_for_a_batch_are_refused_until_the_round_before_is_complete() -> None:
    core = synchronous()
    core.push(wire_push(0, 0))
    with pytest.raises(RefusedError) as refused:
        pull_for(core, 0, 1)
    assert refused.value.refusal.kind is RefusalKind.PULL_DELAYED
    assert pull_for(core, 1, 0).iteration == 0
    core.push(wire_push(1, 0))
    assert pull_for(core, 0, 1).iteration == 1


def test_a_push_of_a_later_round_is_a_gap() -> None:
    """A worker pulled for it before this ps was restored from a snapshot that lacks a part of the round before."""
    core = synchronous()
    core.push(wire_push(0, 0))
    before = state(core)
    answer = core.push(wire_push(0, 1))
    assert (answer.verdict, answer.next_batch) == (PushVerdict.GAP, 1)
    assert state(core) == before


def test_a_pull_waits_for_the_round_in_the_ps() -> None:
    core = synchronous()
    core.push(wire_push(0, 0))
    request = messages.Pull(plan=PLAN.fingerprint, placement_version=1, pin=0, dense=True, tables=(), batch=(0, 1))
    waiting = threading.Thread(target=core.await_admission, args=(request,), kwargs={"now_s": 0.0, "timeout_s": 60.0})
    waiting.start()
    core.push(wire_push(1, 0))
    waiting.join(30.0)
    assert not waiting.is_alive()


def test_an_update_of_empty_batches_changes_nothing() -> None:
    core = synchronous()
    for task in (0, 1):
        core.push(wire_push(task, 0, empty=True))
    assert state(core)[1] == 0
    assert pull_for(core, 0, 1).iteration == 0
