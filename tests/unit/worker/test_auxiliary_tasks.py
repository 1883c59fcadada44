"""Evaluation, merging and export between training batches."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from tests.deadline import DEADLINE_S

from elasticdl.shared.job.tasks import (
    EPOCH_METRICS,
    EVALUATION_METRICS,
    EVALUATION_SUM,
    LAST_CALLBACKS,
    MODEL_LOST,
    MetricStates,
    TaskMessage,
    TaskRef,
)
from elasticdl.shared.messages.events import FailureKind, TaskFinished
from elasticdl.shared.model.metric_states import add_parts, encode_states, pack_states
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.worker.core.commands import RunCallbacks

if TYPE_CHECKING:
    from .conftest import MakeWorld, World


EXPORT = TaskRef(purpose=Purpose.EXPORT, number=0)


def task(purpose: Purpose, number: int = 0, **facts: Any) -> TaskMessage:
    return TaskMessage(task=TaskRef(purpose=purpose, number=number), dispatch=1, term=1, **facts)


def of(world: World, purpose: Purpose) -> list[TaskFinished]:
    return [event for event in world.finished() if event.task.purpose is purpose]


def loss_of(event: TaskFinished) -> tuple[float, float]:
    total, count = (float(np.frombuffer(array, "<f8")[0]) for array in event.states["loss"])
    return total, count


def test_an_evaluation_reads_the_pinned_model_and_reports_states(world: World) -> None:
    world.ps.pins.add(4)
    # Three tasks per evaluation, so number 13 is its task 1: records 4 to 7.
    world.tasks.publish(task(Purpose.EVALUATE, 13, evaluation=4))
    world.run()
    (event,) = of(world, Purpose.EVALUATE)
    assert loss_of(event) == (4 + 5 + 6 + 7, 4)
    assert (event.records, event.batches) == (4, 2)
    assert world.ps.wire == ["pin 4", "pin 4"]
    assert world.ps.released in ([1, 1], [1, 0]), "the worker may end before it has released the last weights"
    assert world.ps.pushes == []


def test_the_next_batch_is_fed_while_one_is_computed(world: World) -> None:
    fed = threading.Semaphore(0)
    ids, evaluate = world.model.ids, world.model.evaluate

    def note_ids(batch: Any, *, training: bool = True) -> Any:
        fed.release()
        return ids(batch, training=training)

    def wait_for_the_next(batch: Any, dense: Any, rows: Any, *, step_seed: int) -> float:
        if not evaluated:  # Both batches of the task have been fed before the first one is computed.
            assert fed.acquire(timeout=DEADLINE_S) and fed.acquire(timeout=DEADLINE_S)
        evaluated.append(batch.count)
        return evaluate(batch, dense, rows, step_seed=step_seed)

    evaluated: list[int] = []
    world.model.ids, world.model.evaluate = note_ids, wait_for_the_next  # type: ignore[method-assign]
    world.ps.pins.add(4)
    world.tasks.publish(task(Purpose.EVALUATE, 0, evaluation=4))
    world.run()
    assert evaluated == [2, 2]
    assert loss_of(of(world, Purpose.EVALUATE)[0]) == (0 + 1 + 2 + 3, 4)


def test_evaluations_leave_the_wire_order_of_training_alone(make_world: MakeWorld) -> None:
    plain, mixed = make_world(), make_world()
    plain.publish_plan()
    plain.run()
    mixed.ps.pins.add(1)
    messages = [task(Purpose.TRAIN, number) for number in range(3)]
    evaluations = [task(Purpose.EVALUATE, number, evaluation=1) for number in range(3)]
    mixed.tasks.publish(*(message for pair in zip(messages, evaluations, strict=True) for message in pair))
    mixed.run()
    assert [line for line in mixed.ps.wire if line != "pin 1"] == plain.ps.wire
    trained = of(mixed, Purpose.TRAIN)
    assert [event.loss_sum for event in trained] == [event.loss_sum for event in plain.finished()]
    assert np.array_equal(mixed.ps.metric_states, plain.ps.metric_states)
    assert len(of(mixed, Purpose.EVALUATE)) == 3


def test_a_task_of_a_lost_pin_is_dropped(world: World) -> None:
    world.tasks.publish(task(Purpose.EVALUATE, 0, evaluation=9), task(Purpose.TRAIN, 0))
    world.run()
    assert [delivery.answer for delivery in world.tasks.deliveries] == ["ack", "ack"]
    assert of(world, Purpose.EVALUATE) == []
    assert len(of(world, Purpose.TRAIN)) == 1
    assert world.failed() == []
    assert [event.reason for event in world.returned()] == ["evaluation 9 is over"]


def test_an_export_that_is_dropped_does_not_take_its_successor_with_it(world: World) -> None:
    """The worker gets both at once, after it was cut off while a ps was restarted."""
    stale = TaskMessage(task=EXPORT, dispatch=1, term=1, audited={"ps-0": "former"})
    present = TaskMessage(task=EXPORT, dispatch=2, term=2)
    world.tasks.publish(stale, present)
    world.run()
    assert [(event.dispatch, event.is_dropped) for event in world.returned()] == [(1, True)]
    assert [event.dispatch for event in of(world, Purpose.EXPORT)] == [2]
    assert [delivery.answer for delivery in world.tasks.deliveries] == ["ack", "ack"]


def test_user_code_that_raises_in_an_evaluation_fails_its_task(make_world: MakeWorld) -> None:
    world = make_world([b"1", b"2", b"3", b"bad"])
    world.ps.pins.add(1)
    world.tasks.deliveries_max = 1
    world.tasks.publish(task(Purpose.EVALUATE, 0, evaluation=1))
    world.run()
    (failure,) = world.failed()
    assert (failure.kind, failure.batch, failure.last_record) == (FailureKind.USER_CODE, 1, 4)
    assert world.tasks.deliveries[0].answer == "nak"


def test_an_evaluation_that_is_stopped_goes_back(world: World) -> None:
    world.ps.pins.add(1)
    evaluate = world.model.evaluate

    class Stopping(type(world.model)):  # type: ignore[misc]
        def evaluate(self, batch: Any, dense: Any, rows: Any, *, step_seed: int) -> float:
            world.stop("SIGTERM")
            return evaluate(batch, dense, rows, step_seed=step_seed)

    world.model = Stopping()
    world.tasks.publish(task(Purpose.EVALUATE, 0, evaluation=1))
    world.run()
    assert world.finished() == []
    assert [event.reason for event in world.returned()] == ["SIGTERM"]
    assert world.tasks.deliveries[0].answer == "nak"


def test_merging_gives_results(world: World) -> None:
    states = encode_states({"loss": [np.array(10.0), np.array(4.0)]})
    world.tasks.publish(task(Purpose.MERGE, 2, label="evaluation", states=states))
    world.run()
    (event,) = of(world, Purpose.MERGE)
    assert event.results == {"loss": 2.5}


def test_an_export_is_done_once_and_reported(world: World) -> None:
    world.tasks.publish(task(Purpose.EXPORT, 0, evaluation=3))
    world.run()
    assert world.exported == [3]
    assert len(of(world, Purpose.EXPORT)) == 1
    assert world.tasks.deliveries[0].answer == "ack"


def test_an_export_is_dropped_when_an_audited_ps_has_restarted(world: World) -> None:
    world.tasks.publish(task(Purpose.EXPORT, 0, audited={"ps-0": "gone"}))
    world.run()
    assert (world.exported, of(world, Purpose.EXPORT)) == ([], [])
    assert [event.reason for event in world.returned()] == ["a ps restarted after the audit"]
    assert world.tasks.deliveries[0].answer == "ack"


def test_the_model_of_an_evaluation_is_saved(world: World) -> None:
    world.tasks.publish(task(Purpose.EXPORT, 5, evaluation=5, label="3"))
    world.run()
    assert (world.saved, world.exported) == ([(5, 3)], [])
    assert len(of(world, Purpose.EXPORT)) == 1


def test_a_task_that_the_worker_can_not_do_is_returned(world: World) -> None:
    world.tasks.deliveries_max = 1
    world.tasks.publish(task(Purpose.EVALUATE, 0, evaluation=1))
    world.run(validation=False)
    assert [event.reason for event in world.returned()] == ["the job has no validation data"]


def test_callbacks_run_with_the_results_of_the_epoch_and_report_what_they_ask_for(world: World) -> None:
    world.tasks.publish(task(Purpose.MERGE, 7, evaluation=4, label=LAST_CALLBACKS, logs={"loss": 2.0}))
    world.run()
    (event,) = of(world, Purpose.MERGE)
    assert world.callbacks == [
        RunCallbacks(task=TaskRef(purpose=Purpose.MERGE, number=7), number=4, logs={"loss": 2.0}, is_last=True)
    ]
    assert (event.results, event.note) == ({"learning_rate": 0.5}, "because")


def test_callbacks_that_lost_the_model_say_so_and_their_task_is_over(world: World) -> None:
    lost = {"ps-0": "a former instance"}
    world.tasks.publish(task(Purpose.MERGE, 7, evaluation=4, label=LAST_CALLBACKS, audited=lost))
    world.run()
    (event,) = of(world, Purpose.MERGE)
    assert (event.results, event.note) == ({MODEL_LOST: 1.0}, "another instance answered")
    assert dict(world.callbacks[0].instances) == lost
    assert len(world.callbacks) == 1


def store_states(world: World, count: int) -> MetricStates:
    """Store so many metric states under the numbers from 1 on; returns their sum in this order."""
    values = np.random.default_rng(7).lognormal(sigma=9.0, size=(count, 2))
    for number, (total, records) in enumerate(values, start=1):
        (world.stored_states[number],) = pack_states(encode_states({"loss": [np.array([total]), np.array([records])]}))
    return add_parts({}, [world.stored_states[number] for number in range(1, count + 1)])


def test_the_metrics_of_an_epoch_are_those_of_the_batches_that_the_ps_have_absorbed(world: World) -> None:
    world.ps.metric_states = np.array([10.0, 4.0])
    world.ps.groups[0].absorb(TaskId(0), 0, 2, 3, 0)
    world.tasks.publish(task(Purpose.MERGE, 7, evaluation=2, label=EPOCH_METRICS))
    world.run()
    (event,) = of(world, Purpose.MERGE)
    assert (event.results, event.batches, event.records) == ({"loss": 2.5}, 1, 3)
    assert world.ps.wire == ["metrics 2"]


def test_the_metrics_of_an_epoch_of_which_a_ps_lacks_batches_are_computed_later(world: World) -> None:
    world.ps.incomplete_reads = 1
    world.ps.metric_states = np.array([10.0, 4.0])
    world.tasks.publish(task(Purpose.MERGE, 7, evaluation=0, label=EPOCH_METRICS))
    world.run()
    assert [event.reason for event in world.returned()] == ["a ps lacks batches of epoch 1"]
    assert of(world, Purpose.MERGE) == [], "the task is off the queue"
    world.tasks.publish(task(Purpose.MERGE, 8, evaluation=0, label=EPOCH_METRICS))
    world.run()
    assert [event.results for event in of(world, Purpose.MERGE)] == [{"loss": 2.5}]


def test_an_epoch_without_metric_states_has_no_metrics(world: World) -> None:
    world.ps.metric_states = np.zeros(0)
    world.tasks.publish(task(Purpose.MERGE, 7, evaluation=0, label=EPOCH_METRICS))
    world.run()
    (event,) = of(world, Purpose.MERGE)
    assert (event.results, event.batches) == ({}, 0)


def test_a_sum_is_stored_beside_the_states_that_it_replaces(world: World) -> None:
    total = store_states(world, 64)
    numbers = tuple(range(1, 65))
    world.tasks.publish(task(Purpose.MERGE, 7, evaluation=4, label=EVALUATION_SUM, stored_states=numbers))
    world.run()
    (event,) = of(world, Purpose.MERGE)
    assert (event.stored_states, world.stored_for) == ((65,), ["evaluation-4"])
    assert add_parts({}, [world.stored_states[65]]) == total


def test_states_are_read_a_few_at_a_time_and_added_in_their_order(world: World) -> None:
    total = store_states(world, 300)
    world.tasks.publish(task(Purpose.MERGE, 7, evaluation=4, label=EVALUATION_SUM, stored_states=tuple(range(1, 301))))
    world.tasks.publish(task(Purpose.MERGE, 8, evaluation=4, label=EVALUATION_METRICS, stored_states=(301,)))
    world.run()
    assert world.loaded == [64, 64, 64, 64, 44, 1]
    assert add_parts({}, [world.stored_states[301]]) == total
    assert of(world, Purpose.MERGE)[1].results == {"loss": loss(total)}


def test_a_merge_of_states_that_were_removed_is_taken_off_the_queue(world: World) -> None:
    store_states(world, 64)
    for number, label in enumerate((EVALUATION_SUM, EVALUATION_METRICS), start=7):
        stored = tuple(range(1, 66)) if label == EVALUATION_SUM else (99,)
        world.tasks.publish(task(Purpose.MERGE, number, evaluation=4, label=label, stored_states=stored))
    world.run()
    assert [(each.is_dropped, each.reason) for each in world.returned()] == 2 * [
        (True, "the metric states of evaluation 4 were removed")
    ]
    assert (of(world, Purpose.MERGE), world.failed()) == ([], [])
    assert [delivery.answer for delivery in world.tasks.deliveries] == ["ack"] * 2


def loss(states: MetricStates) -> float:
    total, records = (float(np.frombuffer(each, "<f8")[0]) for each in states["loss"])
    return total / records
