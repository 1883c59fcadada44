"""Evaluation triggers: what makes an evaluation due, and when one that is due may start.

Triggers are the end of an epoch (``evaluate_epochs``), a step (``evaluation_steps``), the clock
(``evaluation_interval_s``), and the end of training.
"""

from __future__ import annotations

from elasticdl.master.core.evaluation.epochs import epoch_to_evaluate
from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.moves.rebalancing import wants_move
from elasticdl.master.core.state import State
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Envelope, StepReached
from elasticdl.shared.names import Purpose, Service

FINAL = "training is complete"
"""Reason of the evaluation of the finished model."""


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

    During training an evaluation waits for a move, and for a restored ps to catch up: until then its state is older
    than that of the others. Those that are not at the end of an epoch also wait for their minimum distance.
    """
    if state.job_state is JobState.CLOSING:
        return FINAL if wants_final_evaluation(state) else ""
    if state.job_state is not JobState.TRAINING or state.training is None or wants_move(state):
        return ""
    if epoch := epoch_to_evaluate(state):
        return f"epoch {epoch} is complete"
    if not state.evaluation_due or state.training.is_behind:
        return ""
    if state.evaluations and now_s < state.evaluations[-1].started_s + state.job.evaluation_interval_s:
        return ""
    return state.evaluation_due[-1]


def wants_final_evaluation(state: State) -> bool:
    """Whether the closing job still lacks its last evaluation."""
    audit = state.closing.audit
    is_ready = state.job.kind.work is Purpose.EVALUATE or (audit is not None and audit.exact)
    done = any(evaluation.final and evaluation.phase is EvaluationPhase.DONE for evaluation in state.evaluations)
    return state.job.validation is not None and is_ready and not done
