"""What users see of a prediction job."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit.cli.job_log import PLAN, PROCESS, SPEC, WORKER, Log

from elasticdl.cli.display.live import progress_line
from elasticdl.cli.display.next_steps import next_step
from elasticdl.cli.display.report import print_summary
from elasticdl.cli.submission.plan_text import start_lines
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.spec import PredictionSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import PodName, Purpose, Service
from elasticdl.views import report
from elasticdl.views.progress import progress_snapshot

PREDICTING = replace(
    SPEC,
    kind=JobKind.PREDICT,
    plan=replace(PLAN, sources=()),
    validation=PLAN,
    validation_data=SPEC.data,
    output="file:///out",
    prediction=PredictionSpec(),
)


@pytest.fixture
def log() -> Log:
    """A job that has predicted the first of its two tasks."""
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=PREDICTING))
    log.decide(commands.StartPod(pod=WORKER, service=Service.WORKER), commands.EnterState(state=JobState.CLOSING))
    started = events.PodStarted(pod=WORKER, service=Service.WORKER, instance=PROCESS)
    log.add(Service.LAUNCHER, PodName("launcher"), started)
    log.add(Service.WORKER, WORKER, events.WorkerStarted())
    predict(log, 0)
    return log


def predict(log: Log, number: int) -> None:
    task = TaskRef(purpose=Purpose.PREDICT, number=number)
    finished = events.TaskFinished(task=task, dispatch=1, attempt=1, records=20, batches=2, file="x")
    log.add(Service.WORKER, WORKER, finished)


def summary(log: Log) -> str:
    out = io.StringIO()
    print_summary(report.build(log.state), Console(file=out, width=200))
    return out.getvalue()


def test_the_start_and_the_progress_of_a_prediction(log: Log) -> None:
    lines = start_lines(PREDICTING)
    assert lines[0] == "Job digits-abcdef: predicts 40 records in 2 tasks."
    assert "Predictions: /out." in lines
    progress = progress_snapshot(log.state, {}, 105.0, 7.0)
    assert (progress.records, progress.batches) == (20, (2, 4))
    assert "predicting  batch 2/4  7 records/s" in progress_line(progress)


def test_the_report_says_where_the_predictions_are(log: Log) -> None:
    facts = report.build(log.state)
    assert (facts["kind"], facts["audit"]["exact"], facts["audit"]["records"]) == ("predict", False, 0)
    assert facts["predictions"] == {"files": 1, "records": 20, "format": "parquet"}
    predict(log, 1)
    export = TaskRef(purpose=Purpose.EXPORT, number=0)
    log.decide(commands.Dispatch(purpose=Purpose.EXPORT, dispatch=2, tasks=((0, 1),)))
    assert log.shown[-1] == "Publishing the predictions in /out"
    log.add(Service.WORKER, WORKER, events.TaskFinished(task=export, dispatch=2, attempt=1))
    log.decide(commands.EnterState(state=JobState.SUCCEEDED))
    assert report.build(log.state)["audit"]["records"] == 40
    assert "exact: 40 records predicted exactly once" in summary(log)
    assert "/out: 2 files, 40 records, parquet" in summary(log)


def test_a_prediction_that_was_stopped_can_be_continued(log: Log) -> None:
    log.decide(commands.EnterState(state=JobState.STOPPED))
    wanted = "To continue with the tasks that are not predicted yet: elasticdl resume digits"
    assert next_step("digits", log.state) == wanted
