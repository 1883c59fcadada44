"""Messages for the user about the events of a running job. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.master.core import State
from elasticdl.master.core.closing.state import EXPORT_TASKS
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import (
    Command,
    Dispatch,
    EndTraining,
    FormRing,
    JobState,
    PromoteWorker,
    SetLearningRate,
    StartPod,
    StopPod,
)
from elasticdl.shared.messages.events import ExitCause, LogRecord
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.names import PodName, Purpose, Service
from elasticdl.shared.pods.causes import describe_exit
from elasticdl.shared.storage import display
from elasticdl.shared.words import count
from elasticdl.views.history import epoch_rows, evaluation_rows, metrics_text, validation_warnings
from elasticdl.views.incidents import damage_text, lost_row, lost_text, unreadable_text

_OWN_ENDS = frozenset({ExitCause.OWN_FAULT, ExitCause.OUT_OF_MEMORY, ExitCause.HUNG})
"""Causes of exits that no order explains."""


class EventMessages:
    """Turns log records into messages, each of which is given once."""

    def __init__(self) -> None:
        self._notes_given = self._model_note_given = False
        self._epochs_given = 0
        self._evaluations_given = 0
        self._warnings_given = 0
        self._state = JobState.STARTING
        self._owners: tuple[int, ...] = ()
        self._stopping: set[PodName] = set()
        self._slow: set[PodName] = set()
        self._unable_pods: set[PodName] = set()

    def lines(self, record: LogRecord, state: State) -> Iterator[str]:
        """Messages about a record that was just folded into ``state``."""
        # The final error of a job is printed in full when the job has ended, so not here as well.
        yield from self._event(record.envelope, state)
        yield from self._slow_workers(record.envelope.event, state)
        yield from self._moves(state)
        yield from self._epochs(state)
        yield from self._evaluations(state)
        if state.job_state is not self._state:
            self._state = state.job_state
            if self._state is JobState.CLOSING and state.job.kind.trains:
                yield "Training finished. Saving final snapshots and running the audit."

    def skip(self, state: State) -> None:
        """Give no messages about what had happened when the log was folded into ``state``."""
        self._owners = state.placement.owners
        for _ in (*self._epochs(state), *self._evaluations(state)):
            pass
        self._state = state.job_state

    def _event(self, envelope: events.Envelope, state: State) -> Iterator[str]:  # noqa: C901  One line for each kind.
        continues = state.failure is None
        match envelope.event:
            case events.Decided() as decided:
                yield from self._decided(decided, state)
            case events.WorkerStarted(notes=notes) if notes and not self._notes_given:
                self._notes_given = True
                yield from notes
            case events.ModelBuilt() if envelope.name in state.spares:
                yield f"{envelope.name}, a spare worker, is ready."
            case events.PodExited() | events.PodPending() as changed:
                if isinstance(changed, events.PodExited):
                    yield from self._exit(changed, state)
                else:
                    yield from self._unable(changed)
            case events.ModelInitialised(note=note) if note and not self._model_note_given:
                self._model_note_given = True
                yield note
            case events.PsStarted(restored_from=manifest, ledgers=ledgers) if manifest:
                step = min((group.ledger.step for group in ledgers), default=0)
                yield f"{envelope.name} restored its snapshot of step {step}. Later batches are trained again."
            case events.StopRequested(reason=reason) if envelope.service in (Service.PS, Service.WORKER):
                yield f"{reason}. Stopping the job; it can be resumed."
            case events.JobResumed(lost=lost) if lost is not None:
                yield lost_text(lost_row(envelope.time_s, lost))
            case events.SnapshotDamaged() as damaged:
                yield damage_text(damaged)
            case events.MessageUnreadable() as message if _is_told(state.unreadable_messages.count):
                yield unreadable_text(envelope.name, message)
            case events.TaskFailed() as failed if continues:
                yield (
                    f"{envelope.name} failed at {failed.task}, batch {failed.batch}: {_first_line(failed.message)}. "
                    "Retrying the task."
                )
            case events.WorkerFailed(message=message) if continues:
                yield f"{envelope.name} failed: {_first_line(message)}. Restarting it."
            case events.ReplicaDiffered(step=step, tensor=tensor):
                yield (
                    f"The weights of {envelope.name} were not those of the other workers in {tensor} at step {step}. "
                    "It copies the model from them."
                )
            case events.HeartbeatsMissed() | BatchSlow():
                yield from _silence(envelope)
            case events.TermStarted(term=term) if term > 1:
                yield "The new master has recovered the job's state from the event log."
            case _:
                pass

    def _unable(self, pending: events.PodPending) -> Iterator[str]:
        """A pod whose node can't create it; said once for every order, because Kubernetes tries again and again."""
        if pending.limit_s and pending.pod not in self._unable_pods:
            self._unable_pods.add(pending.pod)
            yield f"{pending.pod} can't start: {pending.reason}. Waiting for up to {pending.limit_s:g} s."

    def _exit(self, exited: events.PodExited, state: State) -> Iterator[str]:
        if exited.pod in self._stopping and exited.cause not in _OWN_ENDS:
            return  # The exit was ordered. SIGTERM may have ended the process before it could handle the signal.
        match exited.cause:
            case ExitCause.REFUSED | ExitCause.STOPPED:
                pass
            case ExitCause.FINISHED if exited.running_batches:
                yield f"{exited.pod} exited unexpectedly ({describe_exit(exited.exit_code)})" + _consequence(exited)
            case ExitCause.FINISHED:
                pass
            case ExitCause.HUNG:
                yield f"{exited.pod} hung and ended itself" + _consequence(exited)
                yield from exited.log_tail.removeprefix("error: ").splitlines()
            case _:
                if self._state not in (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED):
                    pod, ended = state.pods.get(exited.pod), describe_exit(exited.exit_code, exited.cause)
                    if pod is not None and state.is_spare(pod):
                        yield f"{exited.pod}, a spare worker, died ({ended})."
                    else:
                        yield f"{exited.pod} died ({ended})" + _consequence(exited)

    def _decided(self, decided: events.Decided, state: State) -> Iterator[str]:
        for command in decided.commands:
            self._on_command(command)
            if isinstance(command, Dispatch) and command.purpose is Purpose.EXPORT and command.tasks == EXPORT_TASKS:
                what = "Publishing the predictions in" if state.job.prediction else "Exporting the model to"
                yield f"{what} {display(command.label or state.job.output)}"
            if isinstance(command, PromoteWorker) and command.replaces != command.worker:
                yield f"{command.worker}, a spare worker, takes the place of {command.replaces}."
            if isinstance(command, FormRing):
                yield f"The ring has {count(len(command.members), 'worker')}: {command.reason}."
            if isinstance(command, EndTraining):
                yield f"Training ends after epoch {command.epochs}: {'; '.join(decided.reasons)}"
            if isinstance(command, SetLearningRate) and state.callbacks.note:
                yield f"Learning rate from epoch {command.epoch + 1} on: {command.rate:g} ({state.callbacks.note})"

    def _on_command(self, command: Command) -> None:
        match command:
            case StopPod(pod=pod):
                self._stopping.add(pod)
            case StartPod(pod=pod):
                self._stopping.discard(pod)
                self._unable_pods.discard(pod)
            case _:
                pass

    def _slow_workers(self, event: events.Event, state: State) -> Iterator[str]:
        second_attempts = [
            TaskRef(purpose=command.purpose, number=task)
            for command in (event.commands if isinstance(event, events.Decided) else ())
            if isinstance(command, Dispatch) and command.again and command.purpose is Purpose.TRAIN
            for start, end in command.tasks
            for task in range(start, end)
        ]
        for task in second_attempts:
            for attempt in state.running_attempts.get(task, {}).values():
                if attempt.worker not in self._slow:
                    self._slow.add(attempt.worker)
                    yield f"{attempt.worker} is slow. Its task {task.number} goes to another worker, too."

    def _moves(self, state: State) -> Iterator[str]:
        before, self._owners = self._owners, state.placement.owners
        if state.placement.version == 1 or before == self._owners:
            return
        moved = {(old, new) for old, new in zip(before, self._owners, strict=True) if old != new}
        for old, new in sorted(moved):
            count = sum(1 for pair in zip(before, self._owners, strict=True) if pair == (old, new))
            yield f"{count} of {len(before)} partitions of the model moved from ps-{old} to ps-{new}"

    def _epochs(self, state: State) -> Iterator[str]:
        """The line of an epoch is given when the epoch is complete and its metrics are computed."""
        training = state.training
        if training is None:
            return
        while self._epochs_given < training.epochs_complete:
            if training.statistics.merged_epochs <= self._epochs_given and not state.is_final:
                return
            row = next((row for row in epoch_rows(state) if row["epoch"] == self._epochs_given + 1), None)
            self._epochs_given += 1
            if row is not None:
                numbers = metrics_text({"loss": row["loss"], **row["metrics"]})
                yield f"epoch {self._epochs_given}/{training.plan.epochs_run}: {numbers}  ({row['seconds']:.1f} s)"

    def _evaluations(self, state: State) -> Iterator[str]:
        rows = evaluation_rows(state)
        for row in rows[self._evaluations_given :]:
            if not state.job.kind.trains:
                yield f"evaluation: {metrics_text(row['metrics'])}"
                continue
            place = f" (end of epoch {row['epoch']})" if row["epoch_end"] else ""
            yield f"validation at step {row['step']}{place}: {metrics_text(row['metrics'])}"
        if len(rows) > self._evaluations_given:
            self._evaluations_given = len(rows)
            warnings = validation_warnings(state)
            yield from (f"Warning: {text}" for text in warnings[self._warnings_given :])
            self._warnings_given = len(warnings)


def _silence(envelope: events.Envelope) -> Iterator[str]:
    match envelope.event:
        case events.HeartbeatsMissed(pod=pod, silent_s=silent_s):
            yield f"No heartbeat from {pod} for {silent_s:.0f} s. Restarting it."
        case BatchSlow(work=work, seconds=seconds) if seconds:
            yield f"{envelope.name} makes no progress: it has been {work} for {seconds:.0f} s."
        case _:
            pass


def _consequence(exited: events.PodExited) -> str:
    if exited.service is Service.WORKER:
        batches = " and ".join(f"batch {held.batch} of {held.task}" for held in exited.running_batches)
        return (f" while computing {batches}" if batches else "") + ". Its tasks are dispatched again."
    if exited.service is Service.PS:
        return ". Restoring it from its latest snapshot."
    return ""


def _is_told(number: int) -> bool:
    """Whether a message that can't be read is shown: one of the first, then each tenth, hundredth..."""
    return str(number).lstrip("123456789").strip("0") == "" and (number < 4 or number % 10 == 0)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0].rstrip(".") if text.strip() else "no message"
