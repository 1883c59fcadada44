"""The metric states of an evaluation of many tasks: summed in steps, each exactly once, and removed after that."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from tests.unit.master.driver import Driver, job_spec, plan
from tests.unit.master.test_statistics import merge_result, removed

from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.evaluation.task_results import StoredTree
from elasticdl.master.core.training.task_messages import task_messages
from elasticdl.shared.job.spec import Limits
from elasticdl.shared.job.tasks import EVALUATION_METRICS, EVALUATION_SUM, MetricStates, TaskMessage, TaskRef
from elasticdl.shared.messages import codec, commands, events
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.model.metric_states import add_parts, pack_states
from elasticdl.shared.names import Purpose, Service

FAN = 4
TASKS = 50
SUM = TaskRef(purpose=Purpose.MERGE, number=1)


def evaluating() -> Driver:
    """A job that has dispatched the tasks of an evaluation; task n of it stores its states under 1000 + n."""
    spec = job_spec(
        validation=plan(records=TASKS, epochs=1, batch=1, batches=1),
        validation_data=job_spec().data,
        evaluate_epochs=True,
        limits=Limits(stored_states_max=FAN),
    )
    driver = Driver(spec)
    driver.start_all(initialised=True)
    for task in driver.dispatched():
        driver.finish(task)
    pin(driver)
    return driver


def merges(driver: Driver) -> list[TaskMessage]:
    asked = [each for each in driver.take(commands.Dispatch) if each.purpose is Purpose.MERGE]
    return [message for each in asked for message in task_messages(driver.state, each, 1)]


def labels(driver: Driver) -> set[str]:
    return {merge.label for merge in driver.state.merges.values()}


def pin(driver: Driver) -> None:
    for order in driver.take(commands.OpenPin):
        pinned = events.ModelPinned(evaluation=order.evaluation, step=17)
        driver.feed(pinned, Service.PS, order.ps, driver.incarnation(order.ps))


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = evaluating()
    yield driver
    driver.check_replay()


def finish(driver: Driver, *tasks: int, number: int = 1, **details: Any) -> None:
    for task in tasks:
        numbers = {"stored_states": (1000 + task,)} | details
        driver.finish(number * TASKS + task, purpose=Purpose.EVALUATE, **numbers)


def test_neighbours_are_replaced_by_their_sum_and_removed_after_it(driver: Driver) -> None:
    finish(driver, 2, 0, 7, 3)
    assert merges(driver) == []
    finish(driver, 1)
    (message,) = merges(driver)
    assert (message.label, message.evaluation, message.stored_states) == (EVALUATION_SUM, 1, (1000, 1001, 1002, 1003))
    assert removed(driver) == [], "another worker may have to read them again"
    merge_result(driver, message, stored_states=(2000,))
    assert removed(driver) == [((), ((1000, 1004),))]
    assert EVALUATION_SUM not in labels(driver), "an evaluation may have thousands of sums"


def test_only_the_first_result_of_a_task_and_of_a_sum_counts(driver: Driver) -> None:
    finish(driver, 0, 1, 2, 3)
    (message,) = merges(driver)
    finish(driver, 2, stored_states=(1999,))
    merge_result(driver, message, stored_states=(2000,))
    removed(driver)
    merge_result(driver, message, stored_states=(2001,))
    finish(driver, 2, stored_states=(2002,))
    assert removed(driver) == [((), ((2001, 2002),)), ((), ((2002, 2003),))]
    assert driver.state.evaluations[0].tasks.stored.levels[1] == {0: (2000,)}


def test_sums_of_a_former_evaluation_do_not_count(driver: Driver) -> None:
    finish(driver, *range(8))
    first, late = merges(driver)
    merge_result(driver, first, stored_states=(2000,))
    removed(driver)
    driver.exit_pod("ps-0", ExitCause.PREEMPTED)
    assert removed(driver) == [(("evaluation-1",), ())]
    merge_result(driver, late, stored_states=(2001,))
    assert removed(driver) == [((), ((2001, 2002),))]
    assert driver.state.evaluations[0].phase is EvaluationPhase.ABANDONED
    assert EVALUATION_SUM not in labels(driver)


def test_an_evaluation_whose_states_are_lost_is_given_up(driver: Driver) -> None:
    finish(driver, *range(8))
    for message in merges(driver):  # The second one is of an evaluation that is over.
        lost = events.TaskReturned(task=message.task, dispatch=1, attempt=1, reason="removed", is_dropped=True)
        driver.feed(lost, Service.WORKER, "worker-0", driver.incarnation("worker-0"))
        assert [each.phase for each in driver.state.evaluations] == [EvaluationPhase.ABANDONED]
    assert removed(driver) == [(("evaluation-1",), ())]
    assert EVALUATION_SUM not in labels(driver)


def values_of(task: int) -> MetricStates:
    """States of which every order of additions gives another sum."""
    random = Random(task)
    return {"auc": (array("d", [random.random() * 10.0 ** random.randint(-9, 9) for _ in range(5)]).tobytes(),)}


class Stored:
    """The stream of stored states, and workers that sum."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.most = 0
        self.messages: list[TaskMessage] = []

    def store(self, states: MetricStates) -> int:
        number = len(self.parts) + 1000
        (self.parts[number],) = pack_states(states)
        return number

    def total(self, message: TaskMessage) -> MetricStates:
        self.messages.append(message)
        return add_parts(message.states, [self.parts[number] for number in message.stored_states])


def evaluate(order: Sequence[int], random: Random) -> tuple[MetricStates, list[TaskMessage]]:
    """Evaluate the tasks in this order while workers sum in any order; the sum from which metrics are computed."""
    driver, stored, asked = evaluating(), Stored(), list[TaskMessage]()
    for task in order:
        finish(driver, task, stored_states=(stored.store(values_of(task)),))
        asked += merges(driver)
        while asked and random.random() < 0.5:
            message = asked.pop(random.randrange(len(asked)))
            merge_result(driver, message, stored_states=(stored.store(stored.total(message)),))
            asked += merges(driver)
    while asked[-1].label == EVALUATION_SUM:
        message = asked.pop(0)
        merge_result(driver, message, stored_states=(stored.store(stored.total(message)),))
        asked += merges(driver)
    (last,) = asked
    driver.check_replay()
    return stored.total(last), stored.messages


def test_the_metrics_have_the_same_bits_whatever_the_order_and_contain_each_task_once() -> None:
    totals = []
    for seed in range(6):
        random = Random(seed)
        total, messages = evaluate(random.sample(range(TASKS), TASKS), random)
        assert [message.label for message in messages[-1:]] == [EVALUATION_METRICS]
        assert max(len(message.stored_states) for message in messages) <= FAN
        totals.append(total["auc"][0])
    assert len(set(totals)) == 1
    exact = [sum(array("d", values_of(task)["auc"][0])[place] for task in range(TASKS)) for place in range(5)]
    assert array("d", totals[0]).tolist() == pytest.approx(exact, rel=1e-12)


def test_small_states_have_the_bits_of_a_sum_in_the_order_of_the_tasks(driver: Driver) -> None:
    states = [values_of(task)["auc"][0][:8] for task in range(TASKS)]
    for task in Random(1).sample(range(TASKS), TASKS):
        finish(driver, task, states={"loss": (states[task],)}, stored_states=())
    (message,) = merges(driver)
    total = 0.0
    for value in states:
        total += array("d", value)[0]
    assert (message.label, message.stored_states) == (EVALUATION_METRICS, ())
    assert array("d", message.states["loss"][0]).tolist() == [total]


def test_very_many_tasks_have_small_messages_and_leave_few_states() -> None:
    tree, most, numbers, stored = StoredTree(size=100_000, fan=64), 0, 1_000_000, 0
    for task in range(tree.size):
        numbers, stored = numbers + 1, stored + 1
        tree.put(task, (numbers,))
        while tree.due:
            numbers += 1
            tree.begin_sum(numbers)
            message = TaskMessage(task=SUM, dispatch=1, term=1, stored_states=tree.to_sum(numbers))
            most = max(most, len(codec.encode_task(message)))
            stored += 1 - len(tree.end_sum(numbers, (numbers,)))
        assert stored <= 3 * tree.fan
    assert (len(tree.numbers), tree.summing) == (25, {})
    assert most < 512
