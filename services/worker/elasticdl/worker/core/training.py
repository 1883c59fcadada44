"""Training: what the result of each operation means for its batch and its task."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.rounds import RoundKey
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import FailureKind, RoundDelayed
from elasticdl.shared.names import TaskId
from elasticdl.shared.process.core_runner import SetTimer
from elasticdl.shared.process.procedures import Procedure
from elasticdl.worker.core import pipelining
from elasticdl.worker.core.batch_order import AnswerMeaning, BatchOrder, BatchRef
from elasticdl.worker.core.commands import (
    AskProgress,
    ComputeBatch,
    PublishEvent,
    PullBatch,
    PushBatch,
    ReadBatch,
    ReleaseBatch,
)
from elasticdl.worker.core.effects import Effects
from elasticdl.worker.core.events import (
    BatchComputed,
    BatchFailed,
    BatchPulled,
    BatchPushed,
    BatchRead,
    BatchUnreadable,
    PullDelayed,
)
from elasticdl.worker.core.pipelining import Batch, Conditions, Phase
from elasticdl.worker.core.round_wait import RoundWait
from elasticdl.worker.core.settings import CoreSettings
from elasticdl.worker.core.tally import Meter, Sample, Tally, add_seconds
from elasticdl.worker.core.tasks.ahead import TasksAhead
from elasticdl.worker.core.tasks.leased import LeasedTasks
from elasticdl.worker.core.tasks.outcomes import FailedBatch, Finished, FinishedTasks, TaskOutcomes
from elasticdl.worker.failures import Failure
from elasticdl.worker.ps_client.requests import PushOutcome, TaskProgress

PULL_TIMER = "pull again"
SURPLUS = "another worker can train it at the same time"
"""Why a worker returns a task of a round that it need not train itself."""


class Training:
    """The train tasks of a worker and the window of batches in progress."""

    def __init__(self, settings: CoreSettings, effects: Effects, leases: LeasedTasks, outcomes: TaskOutcomes) -> None:
        self.meter = Meter()
        self.window: list[Batch] = []
        self.order = BatchOrder(settings.rounds)
        self.finished = FinishedTasks(settings.plan, effects, leases, outcomes)
        self._plan = settings.plan
        self._ahead = TasksAhead(settings.plan.minibatches_per_task)
        self._pipeline = settings.pipeline
        self._round_wait: RoundWait | None = None
        if settings.rounds:
            patience_s, straggler_s = settings.round_patience_s, settings.straggler_s
            self._round_wait = RoundWait(settings.rounds, patience_s=patience_s, straggler_s=straggler_s)
        self._pull_poll_s = settings.pull_poll_s
        self._effects = effects
        self._leases = leases
        self._outcomes = outcomes
        self._tallies: dict[TaskRef, Tally] = {}
        self._marked = 0
        """``order.changes`` when batches were last marked as void."""
        self._pulls_pause = False
        """Bounded staleness: whether no batch is pulled until the timer."""

    # --- tasks ----------------------------------------------------------------------------------------------------

    def begin(self, task: TaskRef, progress: TaskProgress) -> None:
        """Train a leased task from where the ledgers are; a complete one is finished without reading."""
        batches = self._plan.batches_of(TaskId(task.number))
        if self._round_wait:
            self._round_wait.on_task(task)
        if not self.order.begin(task, batches=batches, next_batch=progress.next_batch):
            self._finish(task, progress)

    def returning(self, task: TaskRef, reason: str) -> Procedure[None]:
        """Return a task to the queue, whatever its purpose."""
        self.order.give_away(task)
        tally = self._tallies.pop(task, None)
        return self._outcomes.give_back(self._leases.release(task), reason, tally)

    # --- results of operations ------------------------------------------------------------------------------------

    def on_read(self, event: BatchRead) -> None:
        """A batch was read."""
        batch = self._batch(event.ref, Phase.READING)
        batch.phase = Phase.READ
        batch.records = event.records
        # In synchronous training an empty batch waits for its round like the others.
        batch.is_empty = event.is_empty and self._round_wait is None
        batch.seconds.update(event.seconds)
        self._time(batch, event.seconds)

    def on_unreadable(self, event: BatchUnreadable) -> None:
        """Storage did not deliver a batch."""
        batch = self._batch(event.ref, Phase.READING)
        batch.phase, batch.failure = Phase.FAILED, event.reason

    def on_failed(self, event: BatchFailed) -> None:
        """The data or user code of a batch is wrong."""
        batch = self._batch(event.ref, Phase.READING, Phase.COMPUTING)
        if batch.phase is Phase.READING:
            batch.phase, batch.failure = Phase.FAILED, event.failure
            return
        self._drop(batch)
        if not batch.is_void:
            self._fail(batch.ref, event.failure, event.step)

    def on_pulled(self, event: BatchPulled) -> None:
        """The weights for a batch arrived."""
        batch = self._batch(event.ref, Phase.PULLING)
        batch.phase = Phase.PULLED
        add_seconds(batch.seconds, event.seconds)
        self._time(batch, event.seconds)

    def on_pull_delayed(self, event: PullDelayed) -> None:
        """A batch has to wait for other workers: the pull is repeated soon."""
        batch = self._batch(event.ref, Phase.PULLING, Phase.COMPUTING)
        batch.phase = Phase.READ
        add_seconds(batch.seconds, event.seconds)
        self._time(batch, event.seconds)
        self._leases.progress(self._effects.now_s)  # The worker does not hang; it waits for others.
        if self._round_wait is None:
            self._pulls_pause = True
        else:
            batch.is_delayed = True
            self.window.remove(batch)
            pipelining.insert(self.window, batch, self._key)
            if not batch.is_void:
                self._round_wait.on_incomplete(event.ref, self._effects.now_s)
                self._effects.start(self._find_positions(self._round_wait, event.ref))
                if self._round_wait.reports_delay(self._effects.now_s):
                    self._effects.start(self._report_delay(event.ref))
        self._effects.issue(SetTimer(name=PULL_TIMER, due_s=self._effects.now_s + self._pull_poll_s))

    def _find_position(self, ref: BatchRef) -> Procedure[None]:
        """A ps that was restored from a snapshot may lack earlier batches of the task, too. They come first."""
        task = TaskId(ref.task.number)
        progress = yield AskProgress(task=task, batches=self._plan.batches_of(task))
        if not self.order.is_valid(ref) or progress.next_batch == ref.batch:
            return
        if self.order.reposition(ref.task, progress.next_batch) is AnswerMeaning.FINISHED:
            self._finish(ref.task, progress)

    def _find_positions(self, wait: RoundWait, delayed: BatchRef) -> Procedure[None]:
        """The round may also wait for another task of this worker, of which a batch is next that no pull asks for."""
        if wait.looks_back(self._effects.now_s):
            yield from self._drop_far_ahead(wait)
        if not self.order.is_valid(delayed):
            return
        yield from self._find_position(delayed)
        for task in wait.siblings(delayed.task, self.order.tasks):
            ref = self._unpulled(task)
            if ref:
                yield from self._find_position(ref)

    def _drop_far_ahead(self, wait: RoundWait) -> Procedure[None]:
        """Drop tasks that a restored ps has moved far into the future: the master dispatches all tasks in order again.

        Otherwise they would be first in the queue, before those that the worker needs.
        """
        for task in self.order.tasks:
            earlier = wait.long_before(task)
            if earlier is None:
                continue
            batches = self._plan.batches_of(earlier)
            progress = yield AskProgress(task=earlier, batches=batches)
            if progress.next_batch < batches and task in self.order.tasks:
                wait.end()
                self._effects.start(self._dropping(task))

    def _dropping(self, task: TaskRef) -> Procedure[None]:
        self.order.give_away(task)
        tally = self._tallies.pop(task, None)
        return self._outcomes.drop(self._leases.release(task), "a ps was restored and needs earlier tasks first", tally)

    def _unpulled(self, task: TaskRef) -> BatchRef | None:
        """The next batch of a task, if no earlier one is on its way between the worker and the ps."""
        batches = [batch for batch in self.window if batch.ref.task == task and not batch.is_void]
        if any(batch.phase not in (Phase.READING, Phase.READ) for batch in batches):
            return None
        return batches[0].ref if batches else self.order.peek(task)

    def _report_delay(self, ref: BatchRef) -> Procedure[None]:
        yield PublishEvent(event=RoundDelayed(task=ref.task, batch=ref.batch))

    def on_pull_timer(self) -> None:
        """Pull again for the batches that were delayed."""
        self._pulls_pause = False
        for batch in self.window:
            batch.is_delayed = False

    def on_computed(self, event: BatchComputed) -> None:
        """A batch has gradients."""
        batch = self._batch(event.ref, Phase.COMPUTING)
        batch.phase = Phase.COMPUTED
        self._time(batch, event.seconds)
        self._leases.progress(self._effects.now_s)
        self.meter.batches += 1
        if self._round_wait:
            self._round_wait.on_computed(sum(event.seconds.values()))
        if event.loss is not None:
            self.meter.loss = event.loss
        if not self.order.is_of_current_attempt(event.ref):
            return
        tally = self._tally(event.ref.task)
        tally.add_seconds(batch.seconds)
        tally.add_seconds(event.seconds)
        tally.add_batch(event.ref.batch, records=batch.records, loss=event.loss or 0.0, is_overflow=event.is_overflow)

    def on_pushed(self, event: BatchPushed) -> None:
        """Every ps answered a push."""
        batch = self._batch(event.ref, Phase.PUSHING)
        pull = {part: spent_s for part, spent_s in event.seconds.items() if part != "push"}
        self._time(batch, {"push": event.seconds.get("push", 0.0)}, ended_s_ago=sum(pull.values()))
        for following in self.window:
            if following.phase is Phase.PULLING:
                following.phase = Phase.PULLED if event.has_pulled else Phase.READ
                self._time(following, pull)
        self._drop(batch)
        if batch.is_void:
            return
        outcome = event.outcome
        tally = self._tally(event.ref.task)
        tally.add_seconds(event.seconds)
        tally.add_staleness(outcome.staleness)
        tally.sample = batch.sample or tally.sample
        if outcome.not_finite:
            self._fail(event.ref, Failure(kind=FailureKind.NOT_FINITE, message=outcome.not_finite), event.step)
            return
        self._leases.progress(self._effects.now_s)
        self._ahead.on_batch(self._effects.now_s)
        self._return_surplus(event.ref)
        self.meter.records += batch.records
        self.meter.step = outcome.step or self.meter.step
        if self.order.answered(event.ref, outcome.next_batch) is AnswerMeaning.FINISHED:
            self._finish(event.ref.task, outcome)

    # --- rules ----------------------------------------------------------------------------------------------------

    def advance(self, conditions: Conditions) -> bool:
        """Start one operation that may run now; whether there was one."""
        self._drop_void()
        failed = pipelining.to_report(self.window)
        if failed is not None:
            self._report(failed)
            return True
        if not conditions.is_stopping and self._may_read:
            ref = self.order.take()
            if ref is not None:
                batches = self._plan.batches_of(TaskId(ref.task.number))
                sample = Sample.of(ref.task.number, ref.batch, batches)
                pipelining.insert(self.window, Batch(ref, sample=sample), self._key)
                self._effects.issue(ReadBatch(ref=ref))
                return True
        return self._push(conditions) or self._pull(conditions) or self._compute(conditions)

    @property
    def needs_task(self) -> bool:
        """Whether there is room to read ahead and no batch to read."""
        return self._may_read and not self.order.has_next

    @property
    def tasks_at_once(self) -> int:
        """How many tasks to take; one in synchronous training, which trains the tasks of a round side by side."""
        return 1 if self._round_wait else self._ahead.count

    def wants_sibling(self, now_s: float) -> bool:
        """Synchronous training: whether the worker waits for a round that needs a task that no other worker trains."""
        return self._round_wait is not None and self._round_wait.wants_task(now_s)

    def check(self) -> None:
        """Verify the invariants."""
        valid = [batch for batch in self.window if self.order.is_valid(batch.ref)]
        phases = [batch.phase for batch in self.window]
        for phase in (Phase.PULLING, Phase.COMPUTING, Phase.PUSHING):
            if phases.count(phase) > 1:
                raise InvariantError(f"more than one batch is {phase.value}")
        pulled = sum(batch.has_weights for batch in valid)
        if pulled > self._pipeline.staleness + 1:
            raise InvariantError(f"{pulled} batches have weights, with staleness {self._pipeline.staleness}")
        for task in self.order.tasks:
            if not self._leases.has(task):
                raise InvariantError(f"{task} is trained without a lease")
        places = [(batch.ref.task, batch.ref.batch) for batch in valid]
        if len(set(places)) != len(places):
            raise InvariantError("a batch is in progress twice")

    @property
    def _may_read(self) -> bool:
        if self._round_wait is None:
            return pipelining.may_read(self.window, self._pipeline, batches_are_short=self._ahead.batches_are_short)
        tasks, following = self._round_wait.side_by_side(self.order.tasks), self.order.next_key
        return pipelining.may_read(
            self.window,
            self._pipeline,
            tasks=tasks,
            is_later=lambda batch: following is not None and self._key(batch) > following,
        )

    def _key(self, batch: Batch) -> RoundKey:
        return self.order.key(batch.ref.task, batch.ref.batch)

    def _return_surplus(self, pushed: BatchRef) -> None:
        if self._round_wait is None:
            return
        self.on_pull_timer()
        read = {batch.ref.task for batch in self.window}
        for task in self._round_wait.on_pushed(pushed, self.order.tasks, begun=tuple(self._tallies), read=read):
            self._effects.start(self.returning(task, SURPLUS))

    def _push(self, conditions: Conditions) -> bool:
        found = pipelining.to_push(self.window, self._pipeline, conditions)
        if found is None:
            return False
        batch, following = found
        batch.phase = Phase.PUSHING
        if following is not None:
            following.phase = Phase.PULLING
        self._effects.issue(PushBatch(ref=batch.ref, pull=following.ref if following else None))
        return True

    def _pull(self, conditions: Conditions) -> bool:
        batch = pipelining.to_pull(self.window, self._pipeline, conditions)
        if batch is None or self._pulls_pause:
            return False
        batch.phase = Phase.PULLING
        if self._round_wait:  # Batches of other tasks may have been skipped.
            self.window.remove(batch)
            self.window.insert(0, batch)
        self._effects.issue(PullBatch(ref=batch.ref))
        return True

    def _compute(self, conditions: Conditions) -> bool:
        batch = pipelining.to_compute(self.window, self._pipeline, conditions)
        if batch is None:
            return False
        batch.phase = Phase.COMPUTING
        rate = self._leases.learning_rate(batch.ref.task)
        self._effects.issue(ComputeBatch(ref=batch.ref, learning_rate=rate))
        return True

    def _drop_void(self) -> None:
        self._mark_void()
        for batch in [batch for batch in self.window if batch.is_void and not batch.is_busy]:
            self._drop(batch)

    def _mark_void(self) -> None:
        """Mark the batches that became void. Such a batch stays void: the same ref can't become valid again."""
        if self._marked == self.order.changes:
            return
        self._marked = self.order.changes
        for batch in self.window:
            if not batch.is_void:
                batch.is_void = not self.order.is_valid(batch.ref)

    def _drop(self, batch: Batch) -> None:
        """Forget a batch that no lane works on; its buffers are not in use any more."""
        self.window.remove(batch)
        self._effects.issue(ReleaseBatch(ref=batch.ref))

    def _batch(self, ref: BatchRef, *phases: Phase) -> Batch:
        self._mark_void()
        for batch in self.window:
            if batch.ref is ref or batch.ref == ref:
                if batch.phase not in phases:
                    raise InvariantError(f"{ref} is {batch.phase.value}, not {phases[0].value}")
                return batch
        raise InvariantError(f"{ref} is not in progress")

    def _time(self, batch: Batch, seconds: Mapping[str, float], *, ended_s_ago: float = 0.0) -> None:
        if batch.sample is not None:
            batch.sample.add(seconds, self._effects.now_s - ended_s_ago)

    # --- ends of tasks --------------------------------------------------------------------------------------------

    def _report(self, batch: Batch) -> None:
        self._drop(batch)
        if isinstance(batch.failure, Failure):
            self._fail(batch.ref, batch.failure, 0)
        else:
            self._effects.start(self.returning(batch.ref.task, batch.failure))
            self._outcomes.pause()

    def _finish(self, task: TaskRef, absorbed: PushOutcome | TaskProgress) -> None:
        tally = self._tallies.pop(task, None) or Tally()
        leases = self._leases.release(task)
        if not leases:
            return
        self.finished.add(Finished(leases=leases, tally=tally, absorbed=absorbed))
        if self._round_wait:  # Other workers may wait for what the master does next.
            self.finished.report()

    def _fail(self, ref: BatchRef, failure: Failure, step: int) -> None:
        """Report a batch that can't be processed and return its task; the worker continues with others."""
        self.order.give_away(ref.task)
        self._tallies.pop(ref.task, None)
        where = FailedBatch.of(self._plan, TaskId(ref.task.number), ref.batch, step)
        self._effects.start(self._outcomes.fail(self._leases.release(ref.task), failure, where))
        self._outcomes.pause()

    def _tally(self, task: TaskRef) -> Tally:
        tally = self._tallies.get(task)
        if tally is None:
            tally = self._tallies[task] = Tally()
        return tally
