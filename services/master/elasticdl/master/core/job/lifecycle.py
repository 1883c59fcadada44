"""Submission, resume and requests. A job is submitted once and resumed any number of times, even without its log."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice

from elasticdl.master.core.closing.apply import reset_closing
from elasticdl.master.core.closing.state import Stopping
from elasticdl.master.core.evaluation.apply import abandon_evaluation
from elasticdl.master.core.moves.apply import abort_move
from elasticdl.master.core.rings.apply import reset_ring
from elasticdl.master.core.state import State
from elasticdl.master.core.training.skipping import apply_skip
from elasticdl.master.core.training.state import Training
from elasticdl.shared.messages.commands import EnterState, JobState
from elasticdl.shared.messages.events import (
    Envelope,
    JobResumed,
    JobSubmitted,
    LostLog,
    ScaleRequested,
    StopRequested,
    TermStarted,
)
from elasticdl.shared.messages.measurements import ProcessMeasured, RunMeasured
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import pod_number


def on_job_submitted(state: State, envelope: Envelope, event: JobSubmitted) -> None:
    """Apply the first record of a log. After the loss of a log, the resume repeats it.

    Raises:
        FormatError: the log is of a newer version.
    """
    event.check_format()
    state.spec = event.spec
    state.submitted_s = min(event.spec.created_s or envelope.time_s, envelope.time_s)
    state.training = Training(event.spec.plan)
    state.workers = event.spec.workers
    state.ps = event.spec.ps
    state.placement = Placement.first_of(event.spec)
    state.run = envelope.incarnation


def on_job_resumed(state: State, envelope: Envelope, event: JobResumed) -> None:
    """Apply a resume: every process starts again, from the snapshots."""
    state.resumes += 1
    state.left_out = ()
    state.ps = (0 if state.job.has_ring else event.ps) or state.ps
    if state.move:
        abort_move(state, state.move.number)
    if event.owners:
        state.move = None
        state.placement = Placement(version=event.placement, owners=event.owners)
    state.is_placement_published = state.placement.version == 1
    state.run = envelope.incarnation
    _exclude_pause(state, envelope.time_s)
    state.job_state = JobState.STARTING
    state.failure = None
    state.stop_reason = ""
    state.pods.clear()
    reset_ring(state)
    state.running_attempts.clear()
    state.deliveries_to_return.clear()
    state.failures.clear()
    state.crashes.clear()
    state.silences.clear()
    state.timers.clear()
    state.pending_commands.clear()
    # The resume purged the queue, so open merges are dispatched again.
    state.merges = {number: merge for number, merge in state.merges.items() if merge.done}
    abandon_evaluation(state)
    state.prediction.window.on_queue_purged()
    reset_closing(state)
    state.stopping = Stopping()
    state.measured = None
    state.processes.clear()
    if state.training:
        for ps in list(state.training.credits):
            if ps in state.holders:
                state.training.on_ps_exited(ps)
            else:
                del state.training.credits[ps]
        state.training.on_queue_purged()
    if event.lost:
        _on_lost_log(state, envelope.time_s, event.lost)
    if event.skipped:
        apply_skip(state, event.skipped)
    if event.epochs:
        _add_epochs(state, event.epochs)
    if event.output:
        state.new_output = event.output
        state.spec = replace(state.job, output=event.output)


def _add_epochs(state: State, epochs: int) -> None:
    """Continue with a longer plan: what was the end of training is the end of an epoch now."""
    state.replan(epochs)
    state.best.stale_epochs = 0
    state.callbacks.stops = False
    for evaluation in state.evaluations:
        evaluation.final = False


def _exclude_pause(state: State, time_s: float) -> None:
    """Leave the time between two runs out of all durations."""
    pause_s = max(0.0, time_s - (max(state.ended_s, state.trained_s) or time_s))
    state.ended_s = 0.0
    state.paused_s += pause_s
    if state.training and state.first_step_s:
        state.first_step_s += pause_s
        state.trained_s = min(state.trained_s + pause_s, time_s)
        state.training.statistics.exclude_pause(pause_s, state.plan.tasks_per_epoch)


def _on_lost_log(state: State, time_s: float, lost: LostLog) -> None:
    """Continue with numbers that the lost part can't have used: it counted decisions, these are seconds since 1970.

    A process from before the loss compares terms and must not see a lower one. A late result of an earlier evaluation
    must not match a new evaluation.
    """
    state.lost_logs.append((time_s, lost))
    state.number_floor = max(state.number_floor, int(time_s))
    state.term = max(state.term, state.number_floor)
    state.dispatches = max(state.dispatches, state.number_floor)
    state.requests = max(state.requests, state.number_floor)


def on_stop_requested(state: State, envelope: Envelope, event: StopRequested) -> None:
    """Apply a request to stop; the first reason stays."""
    if not state.stop_reason:
        state.stop_reason, state.stopped_by = event.reason, envelope.service


def on_scale_requested(state: State, _envelope: Envelope, event: ScaleRequested) -> None:
    """Apply a request for another number of workers or ps.

    Those that stay keep their numbers. New ones get the lowest that are free, but not those of workers that leave now.
    """
    before = state.wanted_workers
    leaving = {pod_number(name) for name in event.leaving if name in before}
    staying = [number for name in before if (number := pod_number(name)) not in leaving]
    state.workers = event.workers or state.workers
    state.ps = (0 if state.job.has_ring else event.ps) or state.ps
    wanted = set(staying[: state.workers])
    free = (number for number in count() if number not in leaving and number not in staying)
    wanted |= set(islice(free, state.workers - len(wanted)))
    state.want_workers(wanted)


def on_term_started(state: State, _envelope: Envelope, event: TermStarted) -> None:
    """Apply the start of a master."""
    state.term = event.term


def on_run_measured(state: State, _envelope: Envelope, event: RunMeasured) -> None:
    """Apply what the process adapter has measured; it replaces what it had measured before."""
    state.measured = event


def on_process_measured(state: State, _envelope: Envelope, event: ProcessMeasured) -> None:
    """Apply what the processes of one name have used."""
    state.processes[event.process] = event


def apply_enter_state(state: State, command: EnterState, now_s: float) -> None:
    """Apply a change of the job's state."""
    state.job_state = command.state
    if state.is_final:
        state.ended_s = now_s
        state.timers.clear()
