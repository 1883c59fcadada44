"""A wall clock that is set while a job trains: progress, durations and shares of time do not notice."""

from __future__ import annotations

import re

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, slowly, write_data, write_model

HOUR_S = 3600
FLAGS = ("--num_workers=1", "--num_epochs=3", "--minibatch_size=64", "--num_minibatches_per_task=4")
SITE = """
import os, time

wall_clock = time.time
time.time = lambda: wall_clock() + ({step_s} if os.path.exists({marker!r}) else 0.0)
"""
"""Python imports it in every process of the job."""
SETS_THE_CLOCK = """

class SetsTheClock(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        open({marker!r}, "w").close()


def callbacks():
    return [SetsTheClock()]
"""


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_a_step_of_the_wall_clock_changes_no_progress_and_no_duration(elastic: Elastic, step_s: int) -> None:
    marker = str(elastic.folder / "clock_is_set")
    (elastic.folder / "site").mkdir()
    (elastic.folder / "site" / "sitecustomize.py").write_text(SITE.format(step_s=step_s, marker=marker))
    elastic.environment["PYTHONPATH"] = str(elastic.folder / "site")
    write_model(elastic.folder, slowly(LINEAR, 0.2) + SETS_THE_CLOCK.format(marker=marker))
    write_data(elastic.folder)
    outcome = elastic.train("--model_def=model.py", "--training_data=data", *FLAGS)
    progress = re.findall(r"^\[([\d:]+):\d\d\] training  epoch [23]/3", outcome.output, re.MULTILINE)
    assert progress, outcome.output
    assert all(minutes.isdigit() and int(minutes) < HOUR_S / 120 for minutes in progress)
    parts = [outcome.report[part] for part in ("wall_s", "start_s", "train_s", "close_s")]
    assert all(0.0 <= seconds < HOUR_S / 2 for seconds in (*parts, *outcome.report["worker_seconds"].values()))
    assert outcome.report["worker_seconds"]["stalled"] < outcome.report["wall_s"] / 2
