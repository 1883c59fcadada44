"""What a script is told of the epochs of its job, and the options that are refused before it runs."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from elasticdl.cli.main import app
from elasticdl.cli.script.fit_progress import ended_epochs
from elasticdl.master.core import State
from elasticdl.master.core.training.state import Training
from elasticdl.master.core.training.statistics import EpochTotals
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Shuffle

PLAN = Plan(sources=(), minibatch_size=1, minibatches_per_task=1, epochs=3, shuffle=Shuffle.NONE, seed=0)


def test_an_epoch_has_ended_once_its_metrics_are_computed() -> None:
    state = State(training=Training(PLAN))
    assert state.training is not None
    computed = EpochTotals(batches=2, reported=2, loss_sum=1.0, results={"loss": 0.5, "mae": 0.25}, merged=True)
    state.training.statistics.epochs[0] = computed
    state.training.statistics.epochs[1] = EpochTotals(batches=2, reported=2, loss_sum=4.0)
    assert ended_epochs(state, 2, is_validated=False) == [{"loss": 0.5, "mae": 0.25}]
    assert ended_epochs(state, 2, is_validated=True) == []
    assert ended_epochs(state, 3, is_validated=False) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ring_precision=bfloat16"], "--ring_precision needs --distribution_strategy=AllreduceStrategy"),
        (["--max_staleness=1", "--distribution_strategy=AllreduceStrategy"], "--max_staleness has no effect with"),
        (["--num_workers=0"], "--num_workers=0 is out of range"),
    ],
)
def test_options_that_no_job_could_have_are_refused_before_the_script_runs(options: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["run", *options, "script.py"])
    assert isinstance(result.exception, UserError)
    assert says in str(result.exception)
