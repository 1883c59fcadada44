"""What a user is told to do with a job that did not succeed: a resume only where it can help."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.cli.log_by_hand import PS, SPEC, TASK, WORKER, Log

from elasticdl.cli.display.next_steps import advice, resume_line
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.master.core import State
from elasticdl.ps.snapshots.recovery import NothingLeftError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ExitCause, FailureKind
from elasticdl.shared.model.manifests import DamagedError
from elasticdl.shared.names import PodName, Purpose, Service

FIRST = TaskRef(purpose=Purpose.TRAIN, number=0)


@pytest.fixture
def log() -> Log:
    """A job whose model is there; nothing was trained yet."""
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=SPEC))
    log.decide(commands.StartPod(pod=PS, service=Service.PS), commands.StartPod(pod=WORKER, service=Service.WORKER))
    log.add(Service.LAUNCHER, PodName("launcher"), events.PodStarted(pod=PS, service=Service.PS, pid=1))
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:1"))
    return log


def initialise(log: Log) -> None:
    log.add(Service.PS, PS, events.ModelInitialised(signature="s", parameters=1))


def finish_one(log: Log) -> None:
    log.add(
        Service.WORKER,
        WORKER,
        events.TaskFinished(task=FIRST, dispatch=1, attempt=1, credits={PS: PS * 2}, records=20, batches=2),
    )


def fail_a_task(log: Log, kind: FailureKind) -> None:
    failed = events.TaskFailed(task=TASK, dispatch=1, attempt=1, kind=kind, message="the loss is nan", batch=1, step=7)
    log.add(Service.WORKER, WORKER, *[failed] * SPEC.limits.attempts_max)


def told(log: Log, tmp_path: Path) -> str:
    return advice(RunDirectory(tmp_path, SPEC.job), log.state)


@pytest.mark.parametrize("kind", [FailureKind.USER_CODE, FailureKind.DATA, FailureKind.ENVIRONMENT])
def test_where_nothing_was_learned_nothing_is_resumed(log: Log, tmp_path: Path, kind: FailureKind) -> None:
    log.add(Service.WORKER, WORKER, events.WorkerFailed(kind=kind, message="no"))
    assert "train anew" in told(log, tmp_path)
    assert "resume" not in told(log, tmp_path)


def test_a_model_that_never_computed_a_task_is_not_resumed_even_with_a_snapshot(log: Log, tmp_path: Path) -> None:
    initialise(log)
    fail_a_task(log, FailureKind.USER_CODE)
    assert told(log, tmp_path) == "Mend the model file and train anew: nothing was learned yet."


@pytest.mark.parametrize(("kind", "thing"), [(FailureKind.USER_CODE, "model file"), (FailureKind.DATA, "data")])
def test_a_job_that_has_learned_may_go_on_once_the_cause_is_gone(
    log: Log, tmp_path: Path, kind: FailureKind, thing: str
) -> None:
    initialise(log)
    finish_one(log)
    fail_a_task(log, kind)
    text = told(log, tmp_path)
    assert text.startswith(f"Mend the {thing} and train anew; if ")
    assert text.endswith(f"elasticdl resume {SPEC.job} --run_dir={tmp_path}")


def test_a_model_that_came_to_nan_is_not_resumed_and_it_is_said_once(log: Log, tmp_path: Path) -> None:
    initialise(log)
    finish_one(log)
    before = list(log.told)
    fail_a_task(log, FailureKind.NOT_FINITE)
    assert "resume" not in told(log, tmp_path)
    assert log.told == before, "the end of the job says it in full"
    assert log.state.failure is not None
    first, hint = log.state.failure.message.splitlines()
    assert first == "the loss is nan since step 7 (train 1, batch 1, on worker-0)"
    assert "learning rate" in hint


def test_a_failure_that_may_pass_is_told_at_once(log: Log) -> None:
    failed = events.TaskFailed(
        task=TASK, dispatch=1, attempt=1, kind=FailureKind.USER_CODE, message="feed() raised\nmore", batch=1
    )
    log.add(Service.WORKER, WORKER, failed)
    assert log.told == ["worker-0: train 1, batch 1 failed: feed() raised"]


def test_an_environment_that_refused_can_be_put_right(log: Log, tmp_path: Path) -> None:
    initialise(log)
    exited = events.PodExited(pod=PS, service=Service.PS, pid=1, cause=ExitCause.REFUSED, exit_code=1)
    log.add(Service.LAUNCHER, PodName("launcher"), exited)
    assert told(log, tmp_path) == f"To go on from the last snapshots: elasticdl resume {SPEC.job} --run_dir={tmp_path}"


def test_a_job_that_was_stopped_goes_on_if_it_has_begun(log: Log, tmp_path: Path) -> None:
    log.add(Service.CLIENT, PodName("client-1"), events.StopRequested(reason="elasticdl stop"))
    run = RunDirectory(tmp_path, SPEC.job)
    assert told(log, tmp_path) == f"Nothing was learned yet; start it again with: {resume_line(run)}"
    initialise(log)
    assert told(log, tmp_path) == f"To go on from the last snapshots: {resume_line(run)}"


def test_without_a_log_the_snapshots_say_whether_there_is_anything_to_go_on_with(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, SPEC.job)
    assert advice(run, State()).startswith("Train anew: it ended before it had learned anything")
    assert advice(run, State(), salvageable=True).endswith(f"to go on from its snapshots: {resume_line(run)}")


def test_where_no_snapshot_is_left_no_resume_is_named(log: Log, tmp_path: Path) -> None:
    initialise(log)
    finish_one(log)
    damage = DamagedError("file:///storage/ps-0/manifest", "is missing")
    exited = events.PodExited(
        pod=PS,
        service=Service.PS,
        pid=1,
        cause=ExitCause.REFUSED,
        exit_code=1,
        log_tail=f"error: the ps can't go on reason={NothingLeftError(4, [damage])}",
    )
    log.add(Service.LAUNCHER, PodName("launcher"), exited)
    assert told(log, tmp_path) == "Train anew: no snapshot of ps-0 that the job could go on from is left."


def test_success_needs_no_advice(log: Log, tmp_path: Path) -> None:
    log.decide(commands.EnterState(state=JobState.SUCCEEDED))
    assert told(log, tmp_path) == ""
