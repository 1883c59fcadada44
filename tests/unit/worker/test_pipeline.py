"""The training loop's decision core, driven through every order of answers that hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticdl.shared.job.ledger import Ledger
from elasticdl.shared.names import TaskId
from elasticdl.worker.training.pipeline import Pipeline, Progress, Ticket


def begun(task: int, batches: int, next_batch: int = 0) -> Pipeline:
    pipeline = Pipeline()
    assert pipeline.begin(TaskId(task), batches=batches, next_batch=next_batch)
    return pipeline


def test_an_undisturbed_task_is_worked_through_in_order() -> None:
    pipeline = begun(4, batches=3)
    seen = []
    while ticket := pipeline.take_ticket():
        seen.append((ticket.batch, pipeline.answered(ticket, ticket.batch + 1)))
    assert seen == [(0, Progress.ON), (1, Progress.ON), (2, Progress.FINISHED)]
    assert pipeline.held == ()


def test_a_complete_task_is_not_begun() -> None:
    pipeline = Pipeline()
    assert not pipeline.begin(TaskId(0), batches=3, next_batch=3)
    assert pipeline.take_ticket() is None


def test_a_restored_ps_sends_the_task_back() -> None:
    pipeline = begun(0, batches=9, next_batch=4)
    first, ahead = pipeline.take_ticket(), pipeline.take_ticket()
    assert first is not None and ahead is not None and ahead.batch == 5
    assert pipeline.answered(first, 2) is Progress.MOVED
    assert not pipeline.is_valid(first)
    assert not pipeline.is_valid(ahead)
    again = pipeline.take_ticket()
    assert again == Ticket(task=TaskId(0), batch=2, lap=1, entry=1)


def test_a_task_that_went_back_is_served_before_the_next_one() -> None:
    pipeline = begun(0, batches=2)
    first, second = pipeline.take_ticket(), pipeline.take_ticket()
    assert first is not None and second is not None
    pipeline.begin(TaskId(1), batches=2, next_batch=0)
    ahead = pipeline.take_ticket()
    assert ahead is not None and ahead.task == 1
    assert pipeline.answered(first, 0) is Progress.MOVED
    assert pipeline.is_valid(ahead)
    batches = [(ticket.task, ticket.batch) for ticket in iter(pipeline.take_ticket, None)]
    assert batches == [(0, 0), (0, 1), (1, 1)]


def test_another_worker_that_is_further_saves_work() -> None:
    pipeline = begun(0, batches=9)
    ticket = pipeline.take_ticket()
    assert ticket is not None
    assert pipeline.answered(ticket, 7) is Progress.MOVED
    following = pipeline.take_ticket()
    assert following is not None and following.batch == 7


def test_tickets_of_a_former_stay_are_void() -> None:
    pipeline = begun(0, batches=9)
    ticket = pipeline.take_ticket()
    assert ticket is not None
    pipeline.give_away(TaskId(0))
    assert not pipeline.is_valid(ticket)
    pipeline.begin(TaskId(0), batches=9, next_batch=0)
    assert not pipeline.is_valid(ticket)
    with pytest.raises(ValueError, match="void"):
        pipeline.answered(ticket, 1)


@pytest.mark.parametrize("next_batch", [-1, 4])
def test_numbers_that_cannot_be_are_refused(next_batch: int) -> None:
    pipeline = Pipeline()
    with pytest.raises(ValueError, match="can't begin"):
        pipeline.begin(TaskId(0), batches=3, next_batch=next_batch)
    pipeline.begin(TaskId(0), batches=3, next_batch=0)
    ticket = pipeline.take_ticket()
    assert ticket is not None
    with pytest.raises(ValueError, match="has 3 batches"):
        pipeline.answered(ticket, next_batch)


class WorkerAgainstLedgers(RuleBasedStateMachine):
    """Two groups that can be restored at any moment, another worker on the same tasks, and the pipeline between."""

    TASKS = 4
    BATCHES = 5

    def __init__(self) -> None:
        super().__init__()
        self.pipeline = Pipeline()
        self.groups = [Ledger(), Ledger()]
        self.snapshots = [group.copy() for group in self.groups]
        self.prepared: list[Ticket] = []

    def next_batch(self, task: int) -> int:
        return min(group.next_batch(TaskId(task), self.BATCHES) for group in self.groups)

    def push(self, task: int, batch: int) -> int:
        for group in self.groups:
            group.absorb(TaskId(task), batch, self.BATCHES, records=1, checksum=1)
        return self.next_batch(task)

    def step(self) -> None:
        ticket = self.prepared.pop(0)
        if self.pipeline.is_valid(ticket):
            before = self.next_batch(ticket.task)
            answer = self.push(ticket.task, ticket.batch)
            progress = self.pipeline.answered(ticket, answer)
            assert (progress is Progress.FINISHED) == (answer == self.BATCHES)
            if before == ticket.batch and answer == before + 1 < self.BATCHES:
                assert progress is Progress.ON

    def prepare(self) -> bool:
        ticket = self.pipeline.take_ticket()
        if ticket is not None:
            self.prepared.append(ticket)
        return ticket is not None

    @rule(task=st.integers(0, TASKS - 1))
    def deliver(self, task: int) -> None:
        if TaskId(task) not in self.pipeline.held:
            self.pipeline.begin(TaskId(task), batches=self.BATCHES, next_batch=self.next_batch(task))

    @precondition(lambda self: len(self.prepared) < 3)
    @rule()
    def prepare_ahead(self) -> None:
        self.prepare()

    @precondition(lambda self: self.prepared)
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
        self.pipeline.give_away(TaskId(task))

    @invariant()
    def valid_tickets_of_a_task_are_consecutive(self) -> None:
        for task in self.pipeline.held:
            valid = [t.batch for t in self.prepared if t.task == task and self.pipeline.is_valid(t)]
            assert valid == list(range(valid[0], valid[0] + len(valid))) if valid else True

    def teardown(self) -> None:
        """Without further disturbance every task ends with every group having every batch exactly once."""
        limit = 200
        while limit and any(self.next_batch(task) < self.BATCHES for task in range(self.TASKS)):
            limit -= 1
            if not self.prepare() and not self.prepared:
                for task in range(self.TASKS):
                    self.deliver(task)
            if self.prepared:
                self.step()
        assert all(group.step == self.TASKS * self.BATCHES for group in self.groups)
        assert all(group.records == self.TASKS * self.BATCHES for group in self.groups)


WorkerAgainstLedgers.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWorkerAgainstLedgers = WorkerAgainstLedgers.TestCase


@given(batches=st.integers(1, 50), start=st.integers(0, 49), depth=st.integers(1, 4))
def test_read_ahead_never_changes_the_order(batches: int, start: int, depth: int) -> None:
    if start >= batches:
        return
    pipeline = begun(0, batches=batches, next_batch=start)
    prepared: list[Ticket] = []
    pushed: list[int] = []
    while True:
        while len(prepared) < depth and (ticket := pipeline.take_ticket()):
            prepared.append(ticket)
        if not prepared:
            break
        ticket = prepared.pop(0)
        pushed.append(ticket.batch)
        pipeline.answered(ticket, ticket.batch + 1)
    assert pushed == list(range(start, batches))
    assert pipeline.held == ()
