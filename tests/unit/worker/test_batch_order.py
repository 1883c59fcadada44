"""The order of batches, driven through every order of answers that hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose, TaskId
from elasticdl.worker.core.batch_order import AnswerMeaning, BatchOrder, BatchRef


def train(number: int) -> TaskRef:
    return TaskRef(purpose=Purpose.TRAIN, number=number)


def begun(task: int, batches: int, next_batch: int = 0) -> BatchOrder:
    order = BatchOrder()
    assert order.begin(train(task), batches=batches, next_batch=next_batch)
    return order


def test_an_undisturbed_task_is_worked_through_in_order() -> None:
    order = begun(4, batches=3)
    seen = []
    while ref := order.take():
        seen.append((ref.batch, order.answered(ref, ref.batch + 1)))
    assert seen == [(0, AnswerMeaning.AS_EXPECTED), (1, AnswerMeaning.AS_EXPECTED), (2, AnswerMeaning.FINISHED)]
    assert order.tasks == ()


def test_a_complete_task_is_not_begun() -> None:
    order = BatchOrder()
    assert not order.begin(train(0), batches=3, next_batch=3)
    assert order.take() is None


def test_a_restored_ps_sends_the_task_back() -> None:
    order = begun(0, batches=9, next_batch=4)
    first, ahead = order.take(), order.take()
    assert first is not None and ahead is not None and ahead.batch == 5
    assert order.answered(first, 2) is AnswerMeaning.REPOSITIONED
    assert not order.is_valid(first)
    assert not order.is_valid(ahead)
    again = order.take()
    assert again == BatchRef(task=train(0), batch=2, lap=1, entry=1)


def test_a_task_that_went_back_is_served_before_the_next_one() -> None:
    order = begun(0, batches=2)
    first, second = order.take(), order.take()
    assert first is not None and second is not None
    order.begin(train(1), batches=2, next_batch=0)
    ahead = order.take()
    assert ahead is not None and ahead.task == train(1)
    assert order.answered(first, 0) is AnswerMeaning.REPOSITIONED
    assert order.is_valid(ahead)
    batches = [(ref.task.number, ref.batch) for ref in iter(order.take, None)]
    assert batches == [(0, 0), (0, 1), (1, 1)]


def test_another_worker_that_is_further_saves_work() -> None:
    order = begun(0, batches=9)
    ref = order.take()
    assert ref is not None
    assert order.answered(ref, 7) is AnswerMeaning.REPOSITIONED
    following = order.take()
    assert following is not None and following.batch == 7


def test_refs_of_a_former_stay_are_void() -> None:
    order = begun(0, batches=9)
    ref = order.take()
    assert ref is not None
    order.give_away(train(0))
    assert not order.is_valid(ref)
    order.begin(train(0), batches=9, next_batch=0)
    assert not order.is_valid(ref)
    with pytest.raises(ValueError, match="void"):
        order.answered(ref, 1)


@pytest.mark.parametrize("next_batch", [-1, 4])
def test_numbers_that_cannot_be_are_refused(next_batch: int) -> None:
    order = BatchOrder()
    with pytest.raises(ValueError, match="can't begin"):
        order.begin(train(0), batches=3, next_batch=next_batch)
    order.begin(train(0), batches=3, next_batch=0)
    ref = order.take()
    assert ref is not None
    with pytest.raises(ValueError, match="has 3 batches"):
        order.answered(ref, next_batch)


class WorkerAgainstLedgers(RuleBasedStateMachine):
    """Two groups that can be restored at any moment, another worker on the same tasks, and the order between."""

    TASKS = 4
    BATCHES = 5

    def __init__(self) -> None:
        super().__init__()
        self.order = BatchOrder()
        self.groups = [Ledger(), Ledger()]
        self.snapshots = [group.copy() for group in self.groups]
        self.read: list[BatchRef] = []

    def next_batch(self, task: int) -> int:
        return min(group.next_batch(TaskId(task), self.BATCHES) for group in self.groups)

    def push(self, task: int, batch: int) -> int:
        for group in self.groups:
            group.absorb(TaskId(task), batch, self.BATCHES, records=1, checksum=1)
        return self.next_batch(task)

    def step(self) -> None:
        ref = self.read.pop(0)
        if self.order.is_valid(ref):
            before = self.next_batch(ref.task.number)
            answer = self.push(ref.task.number, ref.batch)
            meaning = self.order.answered(ref, answer)
            assert (meaning is AnswerMeaning.FINISHED) == (answer == self.BATCHES)
            if before == ref.batch and answer == before + 1 < self.BATCHES:
                assert meaning is AnswerMeaning.AS_EXPECTED

    def read_next(self) -> bool:
        ref = self.order.take()
        if ref is not None:
            self.read.append(ref)
        return ref is not None

    @rule(task=st.integers(0, TASKS - 1))
    def deliver(self, task: int) -> None:
        if train(task) not in self.order.tasks:
            self.order.begin(train(task), batches=self.BATCHES, next_batch=self.next_batch(task))

    @precondition(lambda self: len(self.read) < 3)
    @rule()
    def read_ahead(self) -> None:
        self.read_next()

    @precondition(lambda self: self.read)
    @rule()
    def compute_and_push(self) -> None:
        self.step()

    @rule(task=st.integers(0, TASKS - 1))
    def another_worker_pushes(self, task: int) -> None:
        next_batch = self.next_batch(task)
        if next_batch < self.BATCHES:
            self.push(task, next_batch)

    @rule(group=st.integers(0, 1))
    def snapshot(self, group: int) -> None:
        self.snapshots[group] = self.groups[group].copy()

    @rule(group=st.integers(0, 1))
    def restore(self, group: int) -> None:
        self.groups[group] = self.snapshots[group].copy()

    @rule(task=st.integers(0, TASKS - 1))
    def give_away(self, task: int) -> None:
        self.order.give_away(train(task))

    @invariant()
    def valid_refs_of_a_task_are_consecutive(self) -> None:
        for task in self.order.tasks:
            valid = [t.batch for t in self.read if t.task == task and self.order.is_valid(t)]
            assert valid == list(range(valid[0], valid[0] + len(valid))) if valid else True

    def teardown(self) -> None:
        """Without further disturbance every task ends with every group having every batch exactly once."""
        limit = 200
        while limit and any(self.next_batch(task) < self.BATCHES for task in range(self.TASKS)):
            limit -= 1
            if not self.read_next() and not self.read:
                for task in range(self.TASKS):
                    self.deliver(task)
            if self.read:
                self.step()
        assert all(group.step == self.TASKS * self.BATCHES for group in self.groups)
        assert all(group.records == self.TASKS * self.BATCHES for group in self.groups)


WorkerAgainstLedgers.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWorkerAgainstLedgers = WorkerAgainstLedgers.TestCase


@given(batches=st.integers(1, 50), start=st.integers(0, 49), depth=st.integers(1, 4))
def test_read_ahead_never_changes_the_order(batches: int, start: int, depth: int) -> None:
    if start >= batches:
        return
    order = begun(0, batches=batches, next_batch=start)
    read: list[BatchRef] = []
    pushed: list[int] = []
    while True:
        while len(read) < depth and (ref := order.take()):
            read.append(ref)
        if not read:
            break
        ref = read.pop(0)
        pushed.append(ref.batch)
        order.answered(ref, ref.batch + 1)
    assert pushed == list(range(start, batches))
    assert order.tasks == ()
