"""What triggers an evaluation, and when a triggered one may start.

Triggers are a completed epoch, a step (``evaluation_steps``), the clock (``evaluation_interval_s``), and the end of
training. Epochs trigger only where neither steps nor the clock do.
"""

from __future__ import annotations

from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.moves.rebalancing import wants_move
from elasticdl.master.core.state import State
from elasticdl.master.core.training.state import Training
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Envelope, StepReached
from elasticdl.shared.names import Service


def on_epoch_complete(state: State, training: Training) -> None:
    """Trigger an evaluation after an epoch, unless it was the last one: the final evaluation follows."""
    if not state.job.validation or training.is_complete:
        return
    if not (state.job.evaluation_steps or state.job.evaluation_interval_s):
        state.evaluation_due.append(f"epoch {training.epochs_complete} is complete")


def on_step_reached(state: State, envelope: Envelope, event: StepReached) -> None:
    """Trigger an evaluation at a step that the first ps reports; a restored ps reports some steps once more."""
    first_ps = next(state.pods_of(Service.PS), None)
    if not first_ps or first_ps.name != envelope.name or event.step <= state.step_reached:
        return
    state.step_reached = event.step
    if state.job.validation:
        state.evaluation_due.append(f"step {event.step} is reached")


def on_interval_elapsed(state: State) -> None:
    """Trigger an evaluation by the clock."""
    if state.job.validation:
        state.evaluation_due.append(f"{state.job.evaluation_interval_s:g} s have passed")


def reason_to_start(state: State, now_s: float) -> str:
    """Why an evaluation should start now; empty: none should.

    During training an evaluation waits for a move, for its minimum distance from the last one, and for a restored ps
    to catch up: until then its state is older than that of the others.
    """
    if state.job_state is JobState.CLOSING:
        return "training is complete" if wants_final_evaluation(state) else ""
    if state.job_state is not JobState.TRAINING or not state.evaluation_due or wants_move(state):
        return ""
    if state.evaluations and now_s < state.evaluations[-1].started_s + state.job.evaluation_interval_s:
        return ""
    if state.training is None or state.training.is_behind:
        return ""
    return state.evaluation_due[-1]


def wants_final_evaluation(state: State) -> bool:
    """Whether the closing job still lacks its last evaluation."""
    audit = state.closing.audit
    done = any(evaluation.final and evaluation.phase is EvaluationPhase.DONE for evaluation in state.evaluations)
    return state.job.validation is not None and audit is not None and audit.exact and not done
