"""A validation loss that explodes while the training loss is fine is a warning."""

from __future__ import annotations

import pytest

from elasticdl.master.core import State
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.master.core.training.state import Training
from elasticdl.master.core.training.statistics import EpochTotals
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.names import PodName
from elasticdl.views.history import validation_warnings

PLAN = Plan(sources=(), minibatch_size=1, minibatches_per_task=1, epochs=9, shuffle=Shuffle.NONE, seed=0)


def job(training: list[float], validation: list[float]) -> State:
    state = State(training=Training(PLAN))
    assert state.training is not None
    for epoch, (trained, loss) in enumerate(zip(training, validation, strict=True)):
        state.training.statistics.epochs[epoch] = EpochTotals(batches=1, reported=1, loss_sum=trained)
        evaluation = Evaluation(number=epoch + 1, reason="", epoch=epoch, final=False, started_s=0.0)
        evaluation.phase, evaluation.results = EvaluationPhase.DONE, {"loss": loss}
        evaluation.pins[PodName("ps-0")] = 10 * (epoch + 1)
        state.evaluations.append(evaluation)
    return state


def test_an_explosion_is_one_warning_that_names_step_and_losses() -> None:
    (warning,) = validation_warnings(job([0.5, 0.4, 0.3, 0.3], [0.6, 0.5, 523.0, 600.0]))
    assert "rose to 523 at step 30, 1,046 times the best so far (0.5), while the training loss is 0.3" in warning


@pytest.mark.parametrize(
    ("training", "validation"),
    [
        ([0.5, 0.4, 0.3], [0.6, 0.5, 2.0]),  # Overfitting.
        ([0.5, 80.0], [0.6, 90.0]),  # The training loss explodes, too.
        ([1.0, 1.0], [1e-6, 1e-4]),  # Far below the training loss.
        ([-3.0, -4.0], [-3.0, -2.0]),  # A loss that may be negative.
    ],
)
def test_other_losses_are_no_reason_for_a_warning(training: list[float], validation: list[float]) -> None:
    assert validation_warnings(job(training, validation)) == []
