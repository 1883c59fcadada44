"""``EarlyStopping(restore_best_weights=True)``: the master saves the model of the epoch that Keras would restore."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.master.driver import job_spec
from tests.unit.worker_model.test_callbacks import FACTS, PATH

from elasticdl.master.core import State
from elasticdl.master.core.evaluation.best import on_results
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.worker.model.user.callbacks.accepted import check_callbacks

pytestmark = pytest.mark.tensorflow


@pytest.mark.filterwarnings("ignore:Early stopping conditioned on metric")
@settings(deadline=None)
@given(
    values=st.lists(st.floats(min_value=-3, max_value=3, width=32) | st.integers(0, 3).map(float), max_size=8),
    mode=st.sampled_from(["min", "max"]),
    min_delta=st.sampled_from([0, 0.1, 1]),
    start_from_epoch=st.integers(0, 3),
)
def test_the_model_that_is_restored_is_that_of_keras(
    values: list[float], mode: str, min_delta: float, start_from_epoch: int
) -> None:
    def stopping() -> Any:
        return keras.callbacks.EarlyStopping(
            "val_own", min_delta, 9, mode=mode, start_from_epoch=start_from_epoch, restore_best_weights=True
        )

    of_keras, ours = stopping(), stopping()
    model = keras.Sequential([keras.layers.Dense(1)])
    of_keras.set_model(model)
    of_keras.on_train_begin()
    spec = replace(job_spec(), validation=job_spec().plan, evaluate_epochs=True)
    state = State()
    state.spec = replace(spec, best=check_callbacks([ours], PATH, spec, FACTS).best)
    saved = None
    for epoch, value in enumerate(values):
        of_keras.on_epoch_end(epoch, {"val_own": value})
        evaluation = Evaluation(number=epoch + 1, reason="", epoch=epoch, is_epoch_end=True, final=False, started_s=0.0)
        evaluation.results = {"own": value}
        on_results(state, evaluation)
        if evaluation.phase is EvaluationPhase.SAVING:
            saved = epoch
    assert saved == (of_keras.best_epoch if of_keras.best_weights is not None else None)
