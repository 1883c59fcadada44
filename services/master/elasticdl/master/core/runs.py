"""The beginning of a job's runs: it is submitted once and resumed as often as it takes, even without its log."""

from __future__ import annotations

from elasticdl.master.core.closing.closing import reset_closing
from elasticdl.master.core.evaluation import abandon_evaluation
from elasticdl.master.core.moves import give_up_move
from elasticdl.master.core.state import State, Stopping
from elasticdl.master.core.training.bookkeeping import Training
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Envelope, JobResumed, JobSubmitted, LostLog
from elasticdl.shared.model.placement import Placement


def note_submitted(state: State, envelope: Envelope, event: JobSubmitted) -> None:
    """Fold the first record of a log; of one that was lost, a repetition of it."""
    state.spec = event.spec
    state.submitted_s = event.spec.created_s or envelope.time_s
    state.training = Training(event.spec.plan)
    state.workers = event.spec.workers
    state.ps = event.spec.ps
    state.placement = Placement.even(event.spec.ps)
    state.run = envelope.incarnation


def note_resumed(state: State, envelope: Envelope, event: JobResumed) -> None:
    """Fold that everything is started anew, from the snapshots."""
    state.resumes += 1
    state.ps = event.ps or state.ps
    if state.move:
        give_up_move(state, state.move.number)
    if event.owners:
        state.move = None
        state.placement = Placement(version=event.placement, owners=event.owners)
    state.is_published = state.placement.version == 1
    state.run = envelope.incarnation
    _note_pause(state, envelope.time_s)
    state.job_state = JobState.STARTING
    state.failure = None
    state.stop_reason = ""
    state.pods.clear()
    state.holdings.clear()
    state.to_return.clear()
    state.failures.clear()
    state.deaths.clear()
    state.timers.clear()
    state.unran.clear()
    # The queue was purged: what was to be merged is asked for again.
    state.merges = {number: merge for number, merge in state.merges.items() if merge.done}
    abandon_evaluation(state)
    reset_closing(state)
    state.stopping = Stopping()
    if state.training:
        for ps in list(state.training.credits):
            if ps in state.holders:
                state.training.note_ps_gone(ps)
            else:
                del state.training.credits[ps]
        state.training.note_queue_purged()
    if event.lost:
        _note_lost_log(state, envelope.time_s, event.lost)


def _note_pause(state: State, time_s: float) -> None:
    """Leave the time in which nobody ran out of all durations."""
    pause_s = max(0.0, time_s - (max(state.ended_s, state.trained_s) or time_s))
    state.ended_s = 0.0
    state.paused_s += pause_s
    if state.training and state.first_step_s:
        state.first_step_s += pause_s
        state.trained_s = min(state.trained_s + pause_s, time_s)
        state.training.note_pause(pause_s)


def _note_lost_log(state: State, time_s: float, lost: LostLog) -> None:
    """Go on with numbers that the lost part can't have used: they counted decisions, these count seconds since 1970.

    Somebody who is left over from before compares terms, and must not find ours lower; nor may a late result of a
    former evaluation look like one of ours.
    """
    state.lost_logs.append((time_s, lost))
    state.floor = max(state.floor, int(time_s))
    state.term = max(state.term, state.floor)
    state.dispatches = max(state.dispatches, state.floor)
    state.requests = max(state.requests, state.floor)
