"""Training through core, lanes and threads, against a ps that keeps real ledgers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import Envelope, FailureKind, TaskFinished, TaskTaken, WorkerStopped
from elasticdl.shared.names import Incarnation, PodName, Purpose, TaskId

if TYPE_CHECKING:
    from .conftest import MakeWorld, World


def numbers(*values: object) -> list[bytes]:
    return [str(value).encode() for value in values]


PS_SET = ps_set_digest({PodName("ps-0"): Incarnation("aaa"), PodName("ps-1"): Incarnation("bbb")})


def train(number: int) -> TaskMessage:
    return TaskMessage(task=TaskRef(purpose=Purpose.TRAIN, number=number), dispatch=1, term=1)


def assert_absorbed_exactly_once(world: World) -> None:
    records = world.records()
    expected = 0
    for task in world.plan.task_ids():
        for batch in range(world.plan.batches_of(task)):
            expected += records.batch(task, batch).checksum
    for group in world.ps.groups:
        assert list(group.missing(world.plan.tasks)) == []
        assert group.step == world.plan.batches
        assert group.records == world.plan.records
        assert group.checksum == expected % 2**64


def test_a_plan_is_absorbed_exactly_once(world: World) -> None:
    world.publish_plan()
    world.run()
    assert_absorbed_exactly_once(world)
    assert [event.task.number for event in world.finished()] == [0, 1, 2]
    assert [delivery.answer for delivery in world.tasks.deliveries] == ["ack"] * 3
    assert all(event.absorbed_by == PS_SET for event in world.finished())


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_task_has_the_times_of_a_batch(world: World, staleness: int) -> None:
    world.publish_plan()
    world.run(staleness=staleness)
    first, *others = world.finished()
    assert first.sampled is not None
    times, ended = first.sampled.times, first.sampled.ended
    assert first.sampled.batch == 1
    assert ended.read_us >= ended.feed_us >= ended.pull_us >= ended.compute_us >= ended.push_us >= 0
    assert 0 < times.total_s <= first.times.total_s
    assert not any(event.sampled for event in others)


WIRE_ORDER = {
    0: ["pull", "push 0.0", "pull", "push 0.1", "pull", "push 1.0", "pull", "push 1.1", "pull", "push 2.0"],
    1: ["pull", "pull", "push 0.0", "pull", "push 0.1", "pull", "push 1.0", "pull", "push 1.1", "push 2.0"],
}


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_wire_order_is_fixed_across_tasks(world: World, staleness: int) -> None:
    world.publish_plan()
    world.run(staleness=staleness)
    assert world.ps.wire == WIRE_ORDER[staleness]


def test_buffers_are_released_once_each_and_after_the_step(world: World) -> None:
    world.publish_plan()
    world.run()
    assert world.ps.released == [1] * 5


def test_step_seeds_depend_on_the_batch_alone(make_world: MakeWorld) -> None:
    one, other = make_world(), make_world()
    one.publish_plan()
    one.run()
    other.tasks.publish(*(train(number) for number in (2, 0, 1)))
    other.run()
    assert len(set(one.model.seeds)) == 5
    assert other.model.seeds == one.model.seeds[4:] + one.model.seeds[:4]


def test_shuffled_epochs_cover_every_record(make_world: MakeWorld) -> None:
    world = make_world(numbers(*range(7)), numbers(*range(7, 12)), shuffle=Shuffle.RECORDS, epochs=3)
    world.publish_plan()
    world.run()
    assert_absorbed_exactly_once(world)
    assert sorted(value for batch in world.model.trained for value in batch) == sorted([*range(12)] * 3)


@pytest.mark.parametrize("push", range(5))
@pytest.mark.parametrize("group", range(2))
def test_a_restored_ps_makes_its_task_go_back(make_world: MakeWorld, push: int, group: int) -> None:
    world = make_world(per_task=5)
    world.ps.restore_before_push[push] = group
    world.publish_plan()
    world.run()
    assert_absorbed_exactly_once(world)
    assert [event.task.number for event in world.finished()] == [0]


def test_a_complete_task_is_acknowledged_without_reading(world: World) -> None:
    for group in world.ps.groups:
        for batch in range(2):
            group.absorb(TaskId(1), batch, 2, 2, 0)
    world.tasks.publish(train(1))
    world.run()
    assert world.model.trained == []
    assert [event.task.number for event in world.finished()] == [1]
    assert world.finished()[0].absorbed_by == PS_SET
    assert [delivery.answer for delivery in world.tasks.deliveries] == ["ack"]


def test_a_task_begins_where_the_slowest_group_stands(world: World) -> None:
    world.ps.groups[1].absorb(TaskId(0), 0, 2, 2, 0)
    world.tasks.publish(train(0))
    for group in world.ps.groups:
        group.absorb(TaskId(1), 0, 2, 2, 0)
    world.tasks.publish(train(1))
    world.run()
    assert [(push.task, push.batch) for push in world.ps.pushes] == [(0, 0), (0, 1), (1, 1)]


def test_a_second_delivery_shares_the_fate_of_the_first(world: World) -> None:
    world.tasks.publish(train(0), train(0))
    world.run()
    assert [delivery.answer for delivery in world.tasks.deliveries] == ["ack", "ack"]
    assert len(world.events(TaskTaken)) == 2
    # A delivery that arrives after the task is finished is found complete; the batches are computed once either way.
    assert len(world.finished()) in (1, 2)
    assert len(world.model.trained) == world.plan.batches_of(TaskId(0))


def test_filtered_batches_are_pushed_empty_with_their_raw_records(make_world: MakeWorld) -> None:
    world = make_world(numbers(1, "skip", "skip", "skip", 5, 6))
    world.publish_plan()
    world.run()
    assert_absorbed_exactly_once(world)
    assert world.ps.wire == ["pull", "push 0.0", "push 0.1 empty", "pull", "push 1.0"]
    assert world.model.trained == [[1], [5, 6]]
    assert [event.records for event in world.finished()] == [4, 2]


def test_a_bad_record_is_named_and_the_worker_goes_on(make_world: MakeWorld) -> None:
    world = make_world(numbers(0, 1, 2, "bad", 4, 5, 6, 7))
    world.tasks.deliveries_max = 10
    world.publish_plan()
    world.run()
    first = world.failed()[0]
    assert (first.kind, first.batch, first.task.number) == (FailureKind.USER_CODE, 1, 0)
    assert first.message.startswith("record 3 (from 0) of ")
    assert first.message.endswith("0.tfrecord: feed() raised ValueError")
    assert (first.first_record, first.last_record) == (0, 4)
    assert first.source.endswith("0.tfrecord")
    assert "line 7" in first.traceback
    assert world.ps.groups[0].next_batch(TaskId(0), 2) == 1
    assert 1 in [event.task.number for event in world.finished()]


def test_a_loss_that_raises_fails_its_task_and_pushes_nothing(world: World) -> None:
    world.model.raise_at = 5
    world.tasks.deliveries_max = 4
    world.publish_plan()
    world.run()
    first = world.failed()[0]
    assert (first.kind, first.task.number, first.batch) == (FailureKind.USER_CODE, 1, 0)
    assert first.traceback == "File model.py, line 9"
    assert "push 1.0" not in world.ps.wire
    # Task 1 comes back again and again; whether task 2 gets its turn among the four deliveries is chance.
    assert {0} <= {event.task.number for event in world.finished()} <= {0, 2}


def test_a_loss_that_is_not_finite_is_never_pushed(world: World) -> None:
    world.model.nan_from = 4
    world.tasks.deliveries_max = 2
    world.publish_plan()
    world.run()
    first = world.failed()[0]
    assert (first.kind, first.task.number, first.step) == (FailureKind.NOT_FINITE, 1, 2)
    assert [push.task for push in world.ps.pushes] == [0, 0]


def test_gradients_that_a_ps_finds_not_finite_fail_the_task(world: World) -> None:
    world.ps.not_finite_at = 2
    world.publish_plan()
    world.run()
    assert [(event.kind, event.task.number) for event in world.failed()] == [(FailureKind.NOT_FINITE, 1)]
    assert_absorbed_exactly_once(world)


def test_an_overflow_is_absorbed_as_an_empty_batch(world: World) -> None:
    world.model.overflow_at, world.model.state = 3, 0.5
    world.publish_plan()
    world.run()
    assert_absorbed_exactly_once(world)
    assert "push 0.1 empty" in world.ps.wire
    states = [push.statistics_update.tolist() for push in world.ps.pushes]
    assert states == [[0.5, 0.5]] * len(states), "the forward pass has moved the layer state, as in fit"
    assert world.failed() == []
    assert sum(event.overflows for event in world.finished()) == 1
    assert sum(event.loss_sum for event in world.finished()) == pytest.approx(
        sum(sum(values) / len(values) for values in world.model.trained)
    ), "the loss of a batch that overflowed is finite, and counts"


def test_layer_state_that_is_not_finite_is_no_part_of_an_overflow(world: World) -> None:
    world.model.overflow_at, world.model.state = 3, float("inf")
    world.publish_plan()
    world.run()
    (empty,) = [push for push in world.ps.pushes if push.dense_gradient is None]
    assert empty.statistics_update.size == 0


def test_damaged_data_is_the_datas_fault(make_world: MakeWorld) -> None:
    world = make_world()
    path = world.plan.sources[0].uri.removeprefix("file://")
    with open(path, "r+b") as file:
        file.seek(12)
        file.write(b"X")
    world.tasks.deliveries_max = 1
    world.tasks.publish(train(0))
    world.run()
    assert [event.kind for event in world.failed()] == [FailureKind.DATA]
    assert world.tasks.deliveries[0].answer == "nak"


def test_each_push_carries_the_metric_states_of_its_batch(world: World) -> None:
    world.publish_plan()
    world.run()
    states = {(push.task, push.batch): push.metric_states.tolist() for push in world.ps.pushes}
    assert states == {(0, 0): [1, 2], (0, 1): [5, 2], (1, 0): [9, 2], (1, 1): [13, 2], (2, 0): [17, 2]}
    assert not any(event.states for event in world.finished())
    assert [event.loss_sum for event in world.finished()] == [0.5 + 2.5, 4.5 + 6.5, 8.5]
    assert all(e.times.total_s > 0 for e in world.finished())


def run_and_stop_after_two(world: World, *, tasks: int = 2) -> None:
    """Run the plan; SIGTERM comes with the answer to the second push, when so many tasks are taken."""

    class StopAtTwo(type(world.ps)):  # type: ignore[misc]
        def push(self, push: object) -> object:
            outcome = super().push(push)
            if len(self.pushes) == 2:
                deadline_s = time.monotonic() + DEADLINE_S
                while len(world.tasks.deliveries) < tasks and time.monotonic() < deadline_s:
                    threading.Event().wait(0.001)
                world.stop("SIGTERM")
            return outcome

    world.ps = StopAtTwo()
    world.publish_plan()
    world.run()


def test_stopping_gives_everything_back(world: World) -> None:
    run_and_stop_after_two(world)
    assert len(world.ps.pushes) == 2
    assert [event.task.number for event in world.finished()] == [0]
    assert all((event.reason, event.counted) == ("SIGTERM", ()) for event in world.returned())
    first, *others = [delivery.answer for delivery in world.tasks.deliveries]
    assert first == "ack"
    assert set(others) == {"nak"}
    assert isinstance(world.envelopes[-1].event, WorkerStopped)


def test_a_task_that_is_given_back_says_what_was_counted_of_it(make_world: MakeWorld) -> None:
    world = make_world(per_task=5)
    run_and_stop_after_two(world, tasks=1)
    (event,) = world.returned()
    assert (event.task.number, event.counted, event.records) == (0, ((0, 2),), 4)
    assert event.loss_sum == 0.5 + 2.5


def test_a_batch_that_is_computed_again_is_counted_once(make_world: MakeWorld) -> None:
    world = make_world(per_task=5)
    world.ps.restore_before_push[3] = 0
    world.publish_plan()
    world.run()
    assert len(world.ps.pushes) > 5
    (event,) = world.finished()
    assert (event.counted, event.batches, event.records) == (((0, 5),), 5, 10)
    assert event.loss_sum == 0.5 + 2.5 + 4.5 + 6.5 + 8.5
    assert world.ps.metric_states.tolist() == [sum(range(10)), 10]


def test_event_numbers_have_no_gaps(world: World) -> None:
    world.publish_plan()
    world.run()
    assert [envelope.number for envelope in world.envelopes] == list(range(1, len(world.envelopes) + 1))


def test_a_task_is_acknowledged_after_its_event_is_stored(world: World) -> None:
    answers_at_finish: list[str] = []
    append = world.append

    def note(envelopes: Sequence[Envelope]) -> None:
        append(envelopes)
        if isinstance(envelopes[0].event, TaskFinished):
            answers_at_finish.append("".join(delivery.answer for delivery in world.tasks.deliveries))

    world.append = note  # type: ignore[method-assign]
    world.tasks.publish(train(2))
    world.run()
    assert answers_at_finish == [""]
    assert world.tasks.deliveries[0].answer == "ack"
