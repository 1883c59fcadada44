"""What a job's log tells its user while it runs: a few lines, each the moment that it happens. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.cli.display.history import epoch_rows, evaluation_rows, metrics_text
from elasticdl.cli.display.incidents import damage_text, lost_row, lost_text
from elasticdl.cli.local.exits import describe_exit
from elasticdl.master.core import State
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import Command, JobState, StartPod, StopPod
from elasticdl.shared.messages.events import ExitCause, LogRecord
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.storage import display


class Narrator:
    """Turns records into lines; remembers what it has said."""

    def __init__(self) -> None:
        self._notes_said = False
        self._epochs_said = 0
        self._evaluations_said = 0
        self._state = JobState.STARTING
        self._owners: tuple[int, ...] = ()
        self._told_to_stop: set[PodName] = set()

    def lines(self, record: LogRecord, state: State) -> Iterator[str]:
        """What is worth saying about a record that was just folded into ``state``."""
        # What ends the job is said in full at its end, once.
        yield from self._event(record.envelope, goes_on=state.failure is None)
        yield from self._moves(state)
        yield from self._epochs(state)
        yield from self._evaluations(state)
        if state.job_state is not self._state:
            self._state = state.job_state
            if self._state is JobState.CLOSING:
                yield "everything is absorbed; final snapshots and audit"

    def skip(self, state: State) -> None:
        """Leave unsaid what had happened when the log was folded into ``state``."""
        self._owners = state.placement.owners
        for _ in (*self._epochs(state), *self._evaluations(state)):
            pass
        self._state = state.job_state

    def _event(self, envelope: events.Envelope, *, goes_on: bool) -> Iterator[str]:
        match envelope.event:
            case events.Decided(commands=ordered):
                for command in ordered:
                    self._note_order(command)
            case events.WorkerStarted(notes=notes) if notes and not self._notes_said:
                self._notes_said = True
                yield from notes
            case events.PodExited() as exited:
                yield from self._exit(exited)
            case events.PsStarted(restored_from=manifest) if manifest:
                yield f"{envelope.name} restored {display(manifest)}"
            case events.JobResumed(lost=lost) if lost is not None:
                yield f"the event log was {lost_text(lost_row(envelope.time_s, lost))}"
            case events.SnapshotDamaged() as damaged:
                yield damage_text(damaged)
            case events.TaskFailed() as failed if goes_on:
                yield f"{envelope.name}: {failed.task}, batch {failed.batch} failed: {_first_line(failed.message)}"
            case events.WorkerFailed(message=message) if goes_on:
                yield f"{envelope.name}: {_first_line(message)}"
            case events.SilenceNoticed(pod=pod, silent_s=silent_s):
                yield f"{pod} has not been heard of for {silent_s:.0f} s; it is killed and replaced"
            case events.TermStarted(term=term) if term > 1:
                yield "the master was restarted and has read the log"
            case _:
                pass

    def _exit(self, exited: events.PodExited) -> Iterator[str]:
        if exited.pod in self._told_to_stop and exited.cause is not ExitCause.OWN_FAULT:
            return  # Whether it heard SIGTERM in time to say goodbye or not: it was no death.
        match exited.cause:
            case ExitCause.OWN_FAULT | ExitCause.OUTSIDE:
                if self._state not in (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED):
                    yield f"{exited.pod} died ({describe_exit(exited.exit_code, exited.cause)})" + _what_now(exited)
            case ExitCause.FINISHED if exited.running_batches:
                yield f"{exited.pod} ended without a word ({describe_exit(exited.exit_code)})" + _what_now(exited)
            case _:
                pass

    def _note_order(self, command: Command) -> None:
        match command:
            case StopPod(pod=pod):
                self._told_to_stop.add(pod)
            case StartPod(pod=pod):
                self._told_to_stop.discard(pod)
            case _:
                pass

    def _moves(self, state: State) -> Iterator[str]:
        before, self._owners = self._owners, state.placement.owners
        if state.placement.version == 1 or before == self._owners:
            return
        moved = {(old, new) for old, new in zip(before, self._owners, strict=True) if old != new}
        for old, new in sorted(moved):
            count = sum(1 for pair in zip(before, self._owners, strict=True) if pair == (old, new))
            yield f"{count} of {len(before)} partitions of the model moved from ps-{old} to ps-{new}"

    def _epochs(self, state: State) -> Iterator[str]:
        """An epoch's line comes once it is complete and its metrics, if it has any, are merged."""
        training = state.training
        if training is None:
            return
        while self._epochs_said < training.epochs_complete:
            totals = training.epochs.get(self._epochs_said)
            if totals is not None and totals.states and not totals.merged and not state.is_final:
                return
            row = next((row for row in epoch_rows(state) if row["epoch"] == self._epochs_said + 1), None)
            self._epochs_said += 1
            if row is not None:
                numbers = metrics_text({"loss": row["loss"], **row["metrics"]})
                yield f"epoch {self._epochs_said}/{training.plan.epochs_run}: {numbers}  ({row['seconds']:.1f} s)"

    def _evaluations(self, state: State) -> Iterator[str]:
        rows = evaluation_rows(state)
        for row in rows[self._evaluations_said :]:
            yield f"validation at step {row['step']}: {metrics_text(row['metrics'])}"
        self._evaluations_said = len(rows)


def _what_now(exited: events.PodExited) -> str:
    if exited.service is Service.WORKER:
        batches = " and ".join(f"batch {held.batch} of {held.task}" for held in exited.running_batches)
        return (f" with {batches} in hand" if batches else "") + "; its tasks are handed out again"
    if exited.service is Service.PS:
        return "; it is restored from its last snapshot"
    return ""


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no message"
