"""Tasks that run between two training batches, or in jobs that train nothing.

These are evaluation on pinned weights, prediction, merging of metric states, callbacks, and export.
"""

from __future__ import annotations

from collections import deque

from elasticdl.shared.errors import InvariantError, TransientError, UserError
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.job.tasks import (
    CALLBACKS,
    EPOCH_METRICS,
    EVALUATION_SUM,
    LAST_CALLBACKS,
    MODEL_LOST,
    NOTE_CHARS_MAX,
    TaskMessage,
    TaskRef,
    states_of_evaluation,
)
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.procedures import Procedure
from elasticdl.worker.core.commands import (
    ComputeEpochMetrics,
    ExportModel,
    LoadStates,
    MergeResult,
    MergeStates,
    PublishPredictions,
    ReadEpochMetrics,
    ReleaseBatch,
    RunCallbacks,
    SaveModel,
    StoreStates,
    SumStates,
    WritePredictions,
)
from elasticdl.worker.core.effects import Effects
from elasticdl.worker.core.evaluation import Evaluation
from elasticdl.worker.core.events import BatchComputed, BatchFailed, BatchPulled, BatchRead, BatchUnreadable, PinLost
from elasticdl.worker.core.settings import CoreSettings
from elasticdl.worker.core.tally import Tally
from elasticdl.worker.core.tasks.leased import LeasedTask, LeasedTasks
from elasticdl.worker.core.tasks.outcomes import FailedBatch, Finished, TaskOutcomes
from elasticdl.worker.failures import Failure, of_user_error
from elasticdl.worker.ps_client.requests import EpochMetrics, PinLostError

PARTS_AT_ONCE = 64
"""Parts of stored metric states that are in memory at once: 32 MiB at most."""
_NO_RESULT = MergeResult()


class AuxiliaryTasks:
    """The auxiliary tasks of a worker; one runs at a time."""

    def __init__(self, settings: CoreSettings, effects: Effects, leases: LeasedTasks, outcomes: TaskOutcomes) -> None:
        self.evaluation: Evaluation | None = None
        """The evaluation or prediction task whose batches are computed."""
        self._validation = settings.validation
        self._effects = effects
        self._leases = leases
        self._outcomes = outcomes
        self._waiting: deque[LeasedTask] = deque()
        self._running: TaskMessage | None = None

    @property
    def waits(self) -> bool:
        """Whether a task waits for the one that runs, or for the end of a training batch."""
        return bool(self._waiting)

    @property
    def is_active(self) -> bool:
        """Whether a task waits or runs."""
        return bool(self._waiting) or self._running is not None

    @property
    def is_computing(self) -> bool:
        """Whether the main thread works on the running task."""
        if self.evaluation is not None:
            return self.evaluation.computing is not None
        return self._running is not None

    def add(self, lease: LeasedTask) -> None:
        """Run a task as soon as possible."""
        self._waiting.append(lease)

    def advance(self) -> bool:
        """Start the next task unless one runs; no training batch may be in progress. Whether there was one."""
        if self._running is not None or not self._waiting:
            return False
        lease = self._waiting.popleft()
        if not self._leases.is_leased(lease):
            return True  # It was given away meanwhile.
        self._running = lease.message
        self._leases.progress(self._effects.now_s)
        match lease.message.task.purpose:
            case Purpose.EVALUATE | Purpose.PREDICT:
                self._begin_evaluation(lease)
            case Purpose.MERGE if lease.message.label in (CALLBACKS, LAST_CALLBACKS):
                self._effects.start(self._run_callbacks(lease))
            case Purpose.MERGE if lease.message.label == EPOCH_METRICS:
                self._effects.start(self._merge_epoch(lease))
            case Purpose.MERGE:
                self._effects.start(self._merge(lease))
            case Purpose.EXPORT if lease.message.files:
                self._effects.start(self._publish(lease))
            case Purpose.EXPORT:
                self._effects.start(self._export(lease))
            case Purpose.TRAIN:
                raise InvariantError(f"{lease.message.task} is no auxiliary task")
        return True

    # --- evaluation -----------------------------------------------------------------------------------------------

    def on_evaluation(
        self, event: BatchRead | BatchUnreadable | BatchFailed | BatchPulled | BatchComputed | PinLost
    ) -> None:
        """The result of an operation on a batch of an evaluation or prediction task."""
        evaluation = self.evaluation
        if evaluation is None or event.ref.entry != evaluation.entry:
            # That evaluation has failed or was given away; this batch was read or pulled ahead.
            self._effects.issue(ReleaseBatch(ref=event.ref))
            return
        match event:
            case BatchPulled():
                evaluation.on_pulled(event)
            case BatchComputed():
                self._leases.progress(self._effects.now_s)
                evaluation.on_computed(event)
            case PinLost():
                self._end_evaluation()
                self._drop(event.ref.task, f"evaluation {evaluation.pin} is over")
            case BatchFailed() if event.ref == evaluation.computing:
                self._report(evaluation, event)
            case _:
                evaluation.on_read(event)
        if evaluation.failed_read is not None:
            self._report(evaluation, evaluation.failed_read)
        elif evaluation.is_done:
            self._end_evaluation()
            if event.ref.task.purpose is Purpose.PREDICT:
                self._effects.start(self._write(event.ref.task, evaluation.tally))
            else:
                self._finish(event.ref.task, evaluation.tally)

    def _report(self, evaluation: Evaluation, event: BatchFailed | BatchUnreadable) -> None:
        self._end_evaluation()
        if isinstance(event, BatchUnreadable):
            self._give_back(event.ref.task, event.reason)
            return
        where = FailedBatch.of(evaluation.plan, evaluation.plan_task, event.ref.batch)
        self._fail(event.ref.task, event.failure, where)

    def stop(self) -> None:
        """Abandon the evaluation that runs; no batch of it may be computing."""
        if self.evaluation is not None:
            self._end_evaluation()

    def _begin_evaluation(self, lease: LeasedTask) -> None:
        if self._validation is None:
            self._give_back(lease.message.task, "the job has no validation data")
            return
        self.evaluation = Evaluation(self._effects, self._validation, lease)
        self.evaluation.start()

    def _end_evaluation(self) -> None:
        if self.evaluation is not None:
            self.evaluation.release()
        self.evaluation = None

    # --- predictions ----------------------------------------------------------------------------------------------

    def _write(self, task: TaskRef, tally: Tally) -> Procedure[None]:
        """Every batch of the task is predicted. Its file is written before the task is reported."""
        try:
            file: str = yield WritePredictions(task=task)
        except UserError as error:
            self._fail(task, of_user_error(error, FailureKind.USER_CODE))
        except TransientError as error:
            self._give_back(task, str(error))
        else:
            self._finish(task, tally, file=file)

    def _publish(self, lease: LeasedTask) -> Procedure[None]:
        task = lease.message.task
        try:
            seconds: float = yield PublishPredictions(files=lease.message.files)
        except TransientError as error:
            self._give_back(task, str(error))
        else:
            self._finish(task, Tally(seconds={"export": seconds}))

    # --- merge, callbacks and export ----------------------------------------------------------------------------------

    def _merge(self, lease: LeasedTask) -> Procedure[None]:
        """Merge metric states. Stored ones are removed when their evaluation is given up, or was merged elsewhere."""
        task = lease.message.task
        message = lease.message
        states = message.states
        try:
            for start in range(0, len(message.stored_states), PARTS_AT_ONCE):
                numbers = message.stored_states[start : start + PARTS_AT_ONCE]
                parts: tuple[bytes, ...] = yield LoadStates(numbers=numbers)
                if not parts:
                    self._drop(task, f"the metric states of evaluation {message.evaluation} were removed")
                    return
                states = yield SumStates(states=states, parts=parts)
                self._leases.progress(self._effects.now_s)
            if message.label == EVALUATION_SUM:
                group = states_of_evaluation(message.evaluation)
                stored: tuple[int, ...] = yield StoreStates(group=group, states=states)
                self._finish(task, Tally(), stored_states=stored)
            else:
                results = yield MergeStates(task=task, states=states)
                self._finish(task, Tally(), MergeResult(results=results))
        except UserError as error:
            self._fail(task, of_user_error(error, FailureKind.USER_CODE))
        except TransientError as error:
            self._give_back(task, str(error))

    def _merge_epoch(self, lease: LeasedTask) -> Procedure[None]:
        """Compute the metrics of an epoch, unless a ps that was restored from a snapshot lacks batches of it.

        Then the task ends without a result: the master dispatches it again once these batches are trained. A task that
        stayed in the queue would come straight back, before them.
        """
        message = lease.message
        task = message.task
        try:
            found: EpochMetrics = yield ReadEpochMetrics(epoch=message.evaluation, skipped=message.skipped)
            if not found.complete:
                self._drop(task, f"a ps lacks batches of epoch {message.evaluation + 1}")
                return
            results = (yield ComputeEpochMetrics(task=task, states=found.states)) if found.states else {}
        except UserError as error:
            self._fail(task, of_user_error(error, FailureKind.USER_CODE))
        except TransientError as error:
            self._outcomes.pause()
            self._drop(task, str(error))
        else:
            counted = RangeSet([(0, found.batches)])
            self._finish(task, Tally(records=found.records, counted=counted), MergeResult(results=results))

    def _run_callbacks(self, lease: LeasedTask) -> Procedure[None]:
        message = lease.message
        is_last = message.label == LAST_CALLBACKS
        try:
            result = yield RunCallbacks(
                task=message.task,
                number=message.evaluation,
                logs=message.logs,
                is_last=is_last,
                instances=message.audited,
            )
        except PinLostError as error:
            self._outcomes.pause()
            self._finish(
                message.task, Tally(), MergeResult(results={MODEL_LOST: 1.0}, note=str(error)[:NOTE_CHARS_MAX])
            )
        except UserError as error:
            self._fail(message.task, of_user_error(error, FailureKind.USER_CODE))
        except TransientError as error:
            self._give_back(message.task, str(error))
        else:
            self._finish(message.task, Tally(), result)

    def _export(self, lease: LeasedTask) -> Procedure[None]:
        """Task 0 writes the job's output; others save the pinned model of an evaluation."""
        message = lease.message
        task, evaluation = message.task, message.evaluation
        saves = task.number > 0
        try:
            seconds: float = yield (
                SaveModel(pin=evaluation, keep=int(message.label or 0))
                if saves
                else ExportModel(
                    task=task,
                    version=evaluation,
                    output=message.label,
                    audited=message.audited,
                    snapshots=message.snapshots,
                    weights_first=lease.attempt > 1,
                )
            )
        except PinLostError:
            self._outcomes.pause()  # The ps that answered may still be a former instance when the task comes again.
            self._drop(task, f"evaluation {evaluation} is over" if saves else "a ps restarted after the audit")
        except UserError as error:
            self._fail(task, of_user_error(error, FailureKind.USER_CODE))
        except TransientError as error:
            self._give_back(task, str(error))
        else:
            self._finish(task, Tally(seconds={"export": seconds}))

    # --- ends -----------------------------------------------------------------------------------------------------

    def _finish(
        self,
        task: TaskRef,
        tally: Tally,
        result: MergeResult = _NO_RESULT,
        file: str = "",
        stored_states: tuple[int, ...] = (),
    ) -> None:
        finished = Finished(
            leases=self._end(task),
            tally=tally,
            results=result.results,
            note=result.note,
            file=file,
            stored_states=stored_states,
        )
        self._effects.start(self._outcomes.finish(finished))

    def _fail(self, task: TaskRef, failure: Failure, where: FailedBatch | None = None) -> None:
        self._effects.start(self._outcomes.fail(self._end(task), failure, where))

    def _drop(self, task: TaskRef, reason: str) -> None:
        """The task can't be done as it is: pinned weights are gone, or batches are missing. The master repeats it."""
        self._effects.start(self._outcomes.drop(self._end(task), reason))

    def _give_back(self, task: TaskRef, reason: str) -> None:
        self._outcomes.pause()
        self._effects.start(self._outcomes.give_back(self._end(task), reason))

    def _end(self, task: TaskRef) -> list[LeasedTask]:
        running, self._running = self._running, None
        if running is None or running.task != task:
            raise InvariantError(f"{task} does not run")
        self._leases.progress(self._effects.now_s)
        return self._leases.release_dispatch(running)
