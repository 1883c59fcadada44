"""The training loop: one batch at a time through model and ps, with the next one on its way."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace

import structlog

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.permutation import derive_key
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.messages.events import FailureKind, RunningBatch
from elasticdl.shared.names import TaskId
from elasticdl.worker.failures import Failure, of_user_error
from elasticdl.worker.input.batch_loader import Aside, Complete, Errand, Fatal, Faulty, Unreadable
from elasticdl.worker.ports import Asides, Delivery, StepResult
from elasticdl.worker.ps_client import PushRequest
from elasticdl.worker.ps_client.requests import Absorbed
from elasticdl.worker.training.context import WorkContext
from elasticdl.worker.training.leased_tasks import train_task
from elasticdl.worker.training.pipeline import Progress, Ticket
from elasticdl.worker.training.prefetcher import Loaded, Puller
from elasticdl.worker.training.tallies import Tally

_log = structlog.get_logger()
_STEP_SEED = 3
"""Sets the seeds of steps apart from those of the plan's permutations."""


@dataclass(slots=True)
class Meter:
    """What the heartbeat says of the training; written by the main thread, read by another.

    Attributes:
        records: records of batches that were pushed.
        batches: batches computed.
        loss: of the last batch.
        step: of the model after the last push.
    """

    records: int = 0
    batches: int = 0
    loss: float = 0.0
    step: int = 0


@dataclass(slots=True)
class _Tallies:
    """The tally of each task in hand, and whose metrics the model is summing at the moment.

    Attributes:
        by_task: the tallies.
        measured: whose metrics; None: nobody's.
        is_repeat: they are of batches that its tally has already: after a ps was restored, a task goes back.
    """

    by_task: dict[TaskId, Tally] = field(default_factory=dict)
    measured: TaskId | None = None
    is_repeat: bool = False

    def of(self, task: TaskId) -> Tally:
        return self.by_task.setdefault(task, Tally())


class Trainer:
    """Runs on the main thread.

    Args:
        context: what the threads share.
        plan: the training tasks.
        puller: brings the next batch.
        asides: does tasks of other purposes.
        meter: for the heartbeat.
        rate_from_worker: the learning-rate schedule is the user's own code, so every push carries the rate.
        failure_pause_s: rest after a failure, so that a task that comes straight back does not spin.
    """

    def __init__(
        self,
        context: WorkContext,
        *,
        plan: Plan,
        puller: Puller,
        asides: Asides,
        meter: Meter,
        rate_from_worker: bool = False,
        failure_pause_s: float = 0.5,
    ) -> None:
        self._plan = plan
        self._model = context.model
        self._ps = context.ps
        self._held = context.held
        self._leases = context.leases
        self._puller = puller
        self._answers = context.answers
        self._asides = asides
        self._hand = context.hand
        self._stop = context.stop
        self._meter = meter
        self._rate_from_worker = rate_from_worker
        self._failure_pause_s = failure_pause_s
        self._tallies = _Tallies()

    def run(self) -> None:
        """Train until told to stop.

        Raises:
            ElasticDLError: the ps set, the log or this worker itself can't go on.
        """
        loaded: Loaded | None = None
        while not self._stop.is_asked():
            if loaded is not None and not self._held.is_valid(loaded.prepared.ticket):
                loaded.release()
                loaded = None
            self._puller.start(idle=loaded is None)
            computed = self._compute(loaded) if loaded is not None else None
            arrival = self._puller.arrive()
            if loaded is not None:
                if computed is not None:
                    self._push(loaded, computed)
                loaded.release()
            for errand in arrival.errands:
                self._do(errand)
            loaded = arrival.batch
        self._puller.close()
        for task in self._held.train_tasks:
            self._give_back(task, self._stop.reason)

    # --- one batch ------------------------------------------------------------------------------------------------

    def _compute(self, loaded: Loaded) -> PushRequest | None:
        """The push of a batch; None when the batch failed."""
        ticket = loaded.prepared.ticket
        tally = self._measure(ticket)
        tally.add_seconds({**loaded.prepared.seconds, "pull": loaded.pull_s})
        result: StepResult | None = None
        if loaded.model is not None:
            seed = derive_key(self._plan.seed, _STEP_SEED, ticket.task, ticket.batch)
            started_s = time.perf_counter()
            try:
                with self._hand.holding(RunningBatch(task=train_task(ticket.task), batch=ticket.batch)):
                    result = self._model.train(loaded.prepared.batch, loaded.model.dense, loaded.rows(), step_seed=seed)
            except UserError as error:
                self._fail(ticket, of_user_error(error, FailureKind.USER_CODE), step=loaded.model.step)
                return None
            tally.add_seconds({"compute": time.perf_counter() - started_s})
            if not result.finite and not result.overflow:
                finite_loss = math.isfinite(result.loss)
                what = "a gradient is NaN or infinite" if finite_loss else f"the loss is {result.loss}"
                self._fail_not_finite(ticket, loaded, what)
                return None
        return self._weigh(loaded, result, tally)

    def _weigh(self, loaded: Loaded, result: StepResult | None, tally: Tally) -> PushRequest:
        """Count a computed batch and wrap it up; an overflow is absorbed as an empty batch."""
        prepared = loaded.prepared
        self._meter.batches += 1
        self._hand.count_batch()
        if result is not None and result.overflow:
            _log.info("gradients overflowed, batch absorbed empty", task=prepared.ticket.task)
            result = None
        if result is None:
            tally.add_batch(prepared.ticket.batch, records=prepared.records)
        else:
            tally.add_batch(prepared.ticket.batch, records=prepared.records, loss=result.loss)
            self._meter.loss = result.loss
        ticket = prepared.ticket
        batches = self._plan.batches_of(ticket.task)
        request = PushRequest(
            task=ticket.task,
            batch=ticket.batch,
            batches=batches,
            records=prepared.records,
            checksum=prepared.checksum,
            dense_gradient=None,
        )
        if result is None or loaded.model is None:
            return request
        iteration = loaded.model.iteration
        return replace(
            request,
            base_iteration=iteration,
            rate=self._model.rate(iteration) if self._rate_from_worker else None,
            dense_gradient=result.dense_gradient,
            statistics_delta=result.statistics_delta,
            rows={table: (prepared.tables[table].unique, rows) for table, rows in result.row_gradients.items()},
        )

    def _push(self, loaded: Loaded, push: PushRequest) -> None:
        ticket = loaded.prepared.ticket
        started_s = time.perf_counter()
        outcome = self._ps.push(push)
        self._tallies.of(ticket.task).add_seconds({"push": time.perf_counter() - started_s})
        if outcome.not_finite:
            self._fail_not_finite(ticket, loaded, f"NaN or infinite: {outcome.not_finite},")
            return
        self._leases.progress()
        self._meter.records += push.records
        self._meter.step = outcome.step or self._meter.step
        progress, deliveries = self._held.answered(ticket, outcome.next_batch)
        if progress is Progress.MOVED:
            _log.info("task moved", task=ticket.task, pushed=ticket.batch, next_batch=outcome.next_batch)
        elif progress is Progress.FINISHED:
            self._finish(ticket.task, outcome, deliveries)

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _measure(self, ticket: Ticket) -> Tally:
        """Make the model's metrics count for this batch's task from here on, or for nobody if it has the batch."""
        tallies, tally = self._tallies, self._tallies.of(ticket.task)
        is_repeat = ticket.batch in tally.counted
        if (tallies.measured, tallies.is_repeat) != (ticket.task, is_repeat):
            self._harvest()
            tallies.measured, tallies.is_repeat = ticket.task, is_repeat
        return tally

    def _harvest(self) -> None:
        """Credit the model's metrics to the task whose batches they were taken over."""
        tallies = self._tallies
        if tallies.measured is not None:
            if not tallies.is_repeat:
                tallies.of(tallies.measured).add_states(self._model.metric_states("train"))
            self._model.reset_metrics("train")
            tallies.measured = None

    def _finish(self, task: TaskId, absorbed: Absorbed, deliveries: list[Delivery]) -> None:
        self._harvest()
        tally = self._tallies.by_task.pop(task, None) or Tally()
        self._answers.finish(deliveries, tally, absorbed=absorbed)

    def _fail_not_finite(self, ticket: Ticket, loaded: Loaded, what: str) -> None:
        step = loaded.model.step if loaded.model is not None else 0
        self._fail(ticket, Failure(kind=FailureKind.NOT_FINITE, message=what), step=step)

    def _fail(self, ticket: Ticket, failure: Failure, *, step: int = 0) -> None:
        """Report a batch that can't be done and give its task back; the worker goes on with others."""
        _log.error("task failed", task=ticket.task, batch=ticket.batch, kind=failure.kind.value, reason=failure.message)
        deliveries, _ = self._drop(ticket.task)
        shard = self._plan.shard(ticket.task)
        source = self._plan.sources[shard.source].uri
        self._answers.fail(deliveries, failure, source=source, shard=shard, batch=ticket.batch, step=step)
        self._stop.wait(self._failure_pause_s)

    def _give_back(self, task: TaskId, reason: str) -> None:
        deliveries, tally = self._drop(task)
        self._answers.give_back(deliveries, reason, tally)

    def _drop(self, task: TaskId) -> tuple[list[Delivery], Tally | None]:
        if self._tallies.measured == task:
            self._harvest()
        return self._held.give_away(train_task(task)), self._tallies.by_task.pop(task, None)

    # --- between batches ------------------------------------------------------------------------------------------

    def _do(self, errand: Errand) -> None:
        match errand:
            case Complete(task=task, standing=standing):
                self._finish(task, standing, self._held.give_away(train_task(task)))
            case Faulty(ticket=ticket, failure=failure) if self._held.is_valid(ticket):
                self._fail(ticket, failure)
            case Unreadable(ticket=ticket, reason=reason) if self._held.is_valid(ticket):
                _log.warning("data not readable, task returned", task=ticket.task, reason=reason)
                self._give_back(ticket.task, reason)
                self._stop.wait(self._failure_pause_s)
            case Aside(delivery=delivery):
                self._harvest()
                self._asides.run(delivery)
                self._leases.progress()
            case Fatal(error=error):
                raise error
            case _:
                pass  # A fault of a ticket that is void by now.
