"""Tasks of other purposes than training: evaluation on a pinned model, merging of metric states, export."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.job.tasks import TaskMessage
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.model.metric_states import decode_states
from elasticdl.shared.names import Purpose
from elasticdl.worker.evaluation.evaluator import BatchError, Evaluator, Validation
from elasticdl.worker.failures import of_user_error
from elasticdl.worker.ports import Delivery
from elasticdl.worker.ps_client import PinLostError
from elasticdl.worker.training.context import WorkContext
from elasticdl.worker.training.tallies import Tally

_log = structlog.get_logger()
_RETURN_PAUSE_S = 0.5
"""Rest after giving a task back, so that one that comes straight back does not spin."""


class OtherTasks:
    """Runs on the main thread, between two training batches.

    Args:
        context: what the threads share.
        validation: the validation data, if there is any.
        export: writes the model to the job's output, pinned for the given evaluation (0: as it is), calling its
            second argument now and then.
    """

    def __init__(
        self,
        context: WorkContext,
        *,
        validation: Validation | None,
        export: Callable[[int, Callable[[], None]], None],
    ) -> None:
        self._model = context.model
        self._evaluator = Evaluator(context)
        self._held = context.held
        self._leases = context.leases
        self._answers = context.answers
        self._stop = context.stop
        self._validation = validation
        self._export = export

    def run(self, delivery: Delivery) -> None:
        """Do a task and answer its deliveries."""
        message = delivery.message
        self._leases.progress()
        try:
            match message.task.purpose:
                case Purpose.EVALUATE:
                    self._evaluate(message)
                case Purpose.MERGE:
                    self._merge(message)
                case Purpose.EXPORT:
                    self._write_export(message)
                case purpose:
                    self._give_back(message, f"this worker does no {purpose.value} tasks")
        except PinLostError:
            # The master starts the evaluation again, under another number.
            _log.info("pin gone, task dropped", task=str(message.task), evaluation=message.evaluation)
            self._answers.drop(self._held.give_away(message.task), f"evaluation {message.evaluation} is over")
        except UserError as error:
            failure = of_user_error(error, FailureKind.USER_CODE)
            self._answers.fail(self._held.give_away(message.task), failure)
        except TransientError as error:
            self._give_back(message, str(error))

    def _evaluate(self, message: TaskMessage) -> None:
        data = self._validation
        if data is None:
            self._give_back(message, "the job has no validation data")
            return
        try:
            tally = self._evaluator.run(data, message)
        except BatchError as error:
            task = data.task_of(message)
            deliveries, source = self._held.give_away(message.task), data.records.source_uri(task)
            shard = data.records.plan.shard(task)
            self._answers.fail(deliveries, error.failure, source=source, shard=shard, batch=error.batch)
            return
        if tally is not None:  # After a stop the goodbye gives the task back.
            self._answers.finish(self._held.give_away(message.task), tally)

    def _merge(self, message: TaskMessage) -> None:
        results = self._model.merge([decode_states(message.states)])
        self._answers.finish(self._held.give_away(message.task), Tally(), results=results)

    def _write_export(self, message: TaskMessage) -> None:
        started_s = time.perf_counter()
        self._export(message.evaluation, self._leases.progress)
        tally = Tally(seconds={"export": time.perf_counter() - started_s})
        self._answers.finish(self._held.give_away(message.task), tally)

    def _give_back(self, message: TaskMessage, reason: str) -> None:
        _log.warning("task returned", task=str(message.task), reason=reason)
        self._answers.give_back(self._held.give_away(message.task), reason)
        self._stop.wait(_RETURN_PAUSE_S)
