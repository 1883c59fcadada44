"""``elasticdl status``: of a running job, and after its launcher was killed."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console
from tests.unit.cli.job_log import PROCESS, PS, SPEC, TASK, WORKER, Log

from elasticdl.cli.commands.inspect import task_filter
from elasticdl.cli.display.status import print_state, status_facts, without_processes
from elasticdl.cli.jobs.handle import Condition
from elasticdl.cli.jobs.run_directory import INTERRUPTED
from elasticdl.master.core import State
from elasticdl.master.core.evaluation.state import Evaluation, EvaluationPhase
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.names import PodName, Purpose, Service
from elasticdl.shared.pod_instances import own_instance
from elasticdl.shared.words import time_of_day
from elasticdl.views.tasks import TaskFilter, TaskQuery, task_rows

GONE = Condition(is_running=False, state=INTERRUPTED)


@pytest.fixture
def log() -> Log:
    """A job in the middle of its first task."""
    log = Log()
    launcher = PodName("launcher")
    log.add(Service.LAUNCHER, launcher, events.JobSubmitted(spec=SPEC))
    log.decide(
        commands.StartPod(pod=PS, service=Service.PS),
        commands.StartPod(pod=WORKER, service=Service.WORKER),
        commands.EnterState(state=JobState.TRAINING),
    )
    for pod, service, instance in ((PS, Service.PS, PROCESS), (WORKER, Service.WORKER, own_instance())):
        log.add(Service.LAUNCHER, launcher, events.PodStarted(pod=pod, service=service, instance=instance))
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:1"))
    log.add(Service.WORKER, WORKER, events.WorkerStarted())
    log.add(Service.WORKER, WORKER, events.TaskTaken(task=TASK, dispatch=1, attempt=1, reply="r"))
    return log


def shown(state: State, evaluations: int = 0) -> str:
    out = io.StringIO()
    print_state(state, Console(file=out, width=200), 120.0, evaluations=evaluations)
    return out.getvalue()


def test_a_running_job_shows_the_tasks_of_each_worker(log: Log) -> None:
    text = shown(log.state)
    assert own_instance() in text
    assert "train 1" in text
    assert "training  epoch 1/1" in text and "workers 1/2" in text


def test_a_pod_that_can_not_start_yet_shows_why(log: Log) -> None:
    other = PodName("worker-1")
    log.decide(commands.StartPod(pod=other, service=Service.WORKER))
    pending = events.PodPending(pod=other, service=Service.WORKER, reason="no room on any node")
    log.add(Service.LAUNCHER, PodName("launcher"), pending)
    assert "pending: no room on any node" in shown(log.state)
    assert "pending" not in shown(without_processes(log.state, GONE))


def slow(seconds: float) -> BatchSlow:
    return BatchSlow(task=TASK, batch=1, work=f"training batch 1 of task {TASK}", seconds=seconds)


def test_a_worker_without_progress_is_named_with_its_batch_and_the_time(log: Log) -> None:
    log.add(Service.WORKER, WORKER, slow(60.0))
    since_s = log.state.now_s - 60.0
    text = f"worker-0 makes no progress: it has been training batch 1 of task train 1 since {time_of_day(since_s)}"
    assert text in shown(log.state)
    condition = Condition(is_running=True, state="training")
    facts = status_facts(SPEC.job, condition, log.state)["pods"][WORKER]["slow"]
    assert facts == {"task": "train 1", "batch": 1, "work": "training batch 1 of task train 1", "since_s": since_s}
    assert "no progress" not in shown(without_processes(log.state, GONE))
    log.add(Service.WORKER, WORKER, slow(0.0))
    assert "no progress" not in shown(log.state)


def test_the_successor_of_a_worker_that_hung_is_not_slow(log: Log) -> None:
    log.add(Service.WORKER, WORKER, slow(60.0))
    pod = log.state.pods[WORKER]
    exited = events.PodExited(
        pod=WORKER, service=Service.WORKER, instance=pod.instance, cause=events.ExitCause.HUNG, exit_code=79
    )
    log.add(Service.LAUNCHER, PodName("launcher"), exited)
    assert "no progress" not in shown(log.state)


def test_an_interrupted_job_shows_no_processes(log: Log) -> None:
    text = shown(without_processes(log.state, GONE))
    assert own_instance() not in text and "running" not in text
    assert "train 1" not in text
    assert "stopped  epoch 1/1" in text and "workers 0/2  ps 0/1" in text and "(0 in progress)" in text
    assert log.state.running_attempts, "the folded state itself is not changed"


@pytest.mark.parametrize(("alive", "state"), [(True, "training"), (False, "interrupted")])
def test_json_tells_running_from_exited_processes(log: Log, alive: bool, state: str) -> None:
    condition = Condition(is_running=alive, state=state, pids={"master": 7}, waiting="no node has room")
    facts = status_facts(SPEC.job, condition, log.state)
    assert facts["waiting"] == "no node has room"
    assert (facts["state"], facts["pods"]["worker-0"]["pid"]) == (state, os.getpid() if alive else 0)
    assert facts["pods"]["worker-0"]["phase"] == facts["pods"]["master"]["phase"] == ("running" if alive else "exited")


def test_a_job_that_its_launcher_has_given_up_has_the_state_and_the_reason_that_the_launcher_recorded(log: Log) -> None:
    reason = "nats-server has ended 5 times within 60 s"
    given_up = Condition(is_running=False, state=JobState.FAILED.value, message=reason)
    facts = status_facts(SPEC.job, given_up, log.state)
    assert (facts["state"], facts["message"]) == ("failed", reason)
    text = shown(without_processes(log.state, given_up))
    assert f"{SPEC.job}: failed\nfailure: {reason}\n" in text
    stopped = Condition(is_running=False, state=JobState.STOPPED.value, message="the user has left")
    facts = status_facts(SPEC.job, stopped, log.state)
    assert (facts["state"], facts["message"]) == ("stopped", "the user has left")


def test_only_the_latest_evaluations_are_shown_unless_all_are_wanted(log: Log) -> None:
    for number in range(1, 9):
        evaluation = Evaluation(number=number, reason="", epoch=0, final=False, started_s=1.0)
        evaluation.phase = EvaluationPhase.DONE
        evaluation.pins[PS], evaluation.results = number, {"loss": 0.5}
        log.state.evaluations.append(evaluation)
    few, every = shown(log.state, evaluations=2), shown(log.state)
    assert [line.split(":")[0] for line in few.splitlines() if line.startswith("validation")] == [
        "validation at step 7",
        "validation at step 8",
    ]
    assert "The latest 2 of 8 evaluations. To show all: --evaluations=0" in few
    assert every.count("validation at step") == 8 and "latest" not in every


def test_tasks_are_listed_by_state(log: Log) -> None:
    log.decide(commands.Dispatch(purpose=Purpose.TRAIN, dispatch=1, tasks=((0, 2),)))
    running, more = task_rows(log.state, TaskQuery(state=TaskFilter.RUNNING))
    assert [row[-1] for row in running] == ["running on worker-0"]
    assert not more
    unfinished, more = task_rows(log.state, TaskQuery(limit=1))
    assert (len(unfinished), more) == (1, True)
    assert task_rows(log.state, TaskQuery(state=TaskFilter.FINISHED)) == ([], False)
    assert task_rows(log.state, TaskQuery(state=TaskFilter.FAILED)) == ([], False)
    failed = events.TaskFailed(
        task=TASK, dispatch=1, attempt=1, kind=FailureKind.USER_CODE, message="feed() raised", batch=1
    )
    log.add(Service.WORKER, WORKER, failed)
    ((*_, state),), _ = task_rows(log.state, TaskQuery(state=TaskFilter.FAILED))
    assert state.endswith(", failed once")
    with pytest.raises(UserError, match="--state=lost is not a state of tasks"):
        task_filter("lost")
