"""What users see of a running job: messages, progress, logs, histories of tasks."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.unit.cli.job_log import ABSORBED, NEXT_PROCESS, PLAN, PROCESS, PS, SPEC, TASK, WORKER, Log, finish, half_done

from elasticdl.cli.display.live import PlainView, TerminalView, progress_line
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.environment import job_environment
from elasticdl.cli.local.processes.imports import import_environment, threads_each
from elasticdl.cli.local.processes.logs import NewLines, last_error, tail
from elasticdl.cli.submission.plan_text import start_lines
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.commands import FormRing, JobState, RingMember
from elasticdl.shared.messages.events import ExitCause, GroupLedger
from elasticdl.shared.names import GroupId, Incarnation, PodName, Purpose, Service
from elasticdl.shared.pods.log_lines import readable
from elasticdl.shared.process.settings import WorkerSettings, from_environment
from elasticdl.views.event_messages import EventMessages
from elasticdl.views.history import metrics_text
from elasticdl.views.progress import ProgressSnapshot, Rate, progress_snapshot
from elasticdl.views.records import command_text, one_line, task_history


@pytest.fixture
def log() -> Log:
    return half_done()


@pytest.mark.parametrize(("cores", "text"), [(1, "1 thread each."), (8, "4 threads each.")])
def test_the_threads_of_each_process_are_counted_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, text: str
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    run = RunDirectory(tmp_path, SPEC.job)
    assert start_lines(replace(SPEC, workers=1, ps=1), run)[1].endswith(f", {text}")


def test_a_script_is_told_of_an_option_that_it_has(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, SPEC.job)
    spec = replace(SPEC, workers=2, max_staleness=None)
    of_script = replace(spec, model=replace(spec.model, path=str(run.path / "model" / "train.py")))
    for each, option in ((spec, "--global_batch_size="), (of_script, "--grads_to_wait=1")):
        assert f"--use_async=false {option}" in start_lines(each, run)[-1]


def test_records_that_are_batches_are_called_batches(log: Log) -> None:
    plan = replace(PLAN, sources=(replace(PLAN.sources[0], records=44),), minibatch_size=1, epochs=4)
    lines = start_lines(replace(SPEC, plan=plan, workers=2, max_staleness=None))
    assert lines[0].startswith("Job digits-abcdef: 44 batches x 4 epochs in ")
    assert "--use_async=false --grads_to_wait=1 makes" in lines[-1]  # Also in a cluster.
    seen = replace(progress_snapshot(log.state, {}, 120.0, 5.0), counts_batches=plan.counts_batches)
    assert "5 batches/s" in progress_line(seen)


def test_important_events_are_reported_once(log: Log) -> None:
    finish(log)
    assert len(log.shown) == 2, "the metrics of the epoch are not computed yet"
    merge = TaskRef(purpose=Purpose.MERGE, number=1)
    log.decide(commands.Dispatch(purpose=Purpose.MERGE, dispatch=2, tasks=((1, 2),), label="epoch"))
    log.add(Service.WORKER, WORKER, events.TaskFinished(task=merge, dispatch=2, attempt=1, batches=4, records=40))
    assert log.shown == [
        "one thread",
        "worker-0 died (SIGKILL) while computing batch 1 of train 1. Its tasks are dispatched again.",
        "epoch 1/1: loss 0.7500  (5.0 s)",
    ]


def test_an_export_which_may_take_long_has_a_line(log: Log) -> None:
    for task, line in ((1, []), (0, ["Exporting the model to /models/mine"])):
        before = len(log.shown)
        dispatch = commands.Dispatch(
            purpose=Purpose.EXPORT, dispatch=9, tasks=((task, task + 1),), label="file:///models/mine"
        )
        log.decide(dispatch)
        assert log.shown[before:] == line


def test_an_ordered_exit_is_not_reported_as_a_death(log: Log) -> None:
    log.decide(commands.StopPod(pod=PS, reason="stop"))
    before = list(log.shown)
    exited = events.PodExited(pod=PS, service=Service.PS, instance=PROCESS, cause=ExitCause.PREEMPTED, exit_code=-15)
    log.add(Service.LAUNCHER, PodName("launcher"), exited)
    assert log.shown == before
    log.decide(commands.StartPod(pod=PS, service=Service.PS))
    log.add(Service.LAUNCHER, PodName("launcher"), exited)
    assert log.shown[-1] == "ps-0 died (SIGTERM). Restoring it from its latest snapshot."


def test_moves_before_a_resume_are_not_reported_and_moves_after_it_are(log: Log) -> None:
    log.decide(commands.PublishPlacement(version=2, owners=(0,) * 128 + (1,) * 128))
    messages = EventMessages()
    messages.skip(log.state)
    assert list(messages.lines(log.records[-1], log.state)) == []
    log.decide(commands.PublishPlacement(version=3, owners=(0,) * 256))
    assert list(messages.lines(log.records[-1], log.state)) == [
        "128 of 256 partitions of the model moved from ps-1 to ps-0"
    ]


def test_the_start_message_says_where_max_step_ends_the_plan() -> None:
    plan = replace(PLAN, epochs=5, max_step=6)
    first = start_lines(replace(SPEC, plan=plan))[0]
    assert "40 records x 5 epochs, ended by --max_step=6 in epoch 2 = 6 batches in 3 tasks" in first
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=replace(SPEC, plan=plan)))
    assert progress_snapshot(log.state, {}, 120.0, 0.0).epoch == (1, 2)


def test_the_start_message_says_that_small_files_make_small_batches() -> None:
    small = replace(PLAN, sources=(replace(PLAN.sources[0], records=4),) * 3)
    note = "Batches have 4.0 records on average instead of 10, because the files are small"
    assert any(line.startswith(note) for line in start_lines(replace(SPEC, plan=small)))
    for plan in (PLAN, replace(small, shuffle=Shuffle.GLOBAL), replace(PLAN, sources=(*PLAN.sources, *PLAN.sources))):
        assert not any("on average" in line for line in start_lines(replace(SPEC, plan=plan)))


def test_a_finished_job_shows_all_batches_even_if_workers_reported_fewer() -> None:
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=SPEC))
    log.decide(commands.StartPod(pod=PS, service=Service.PS), commands.StartPod(pod=WORKER, service=Service.WORKER))
    log.add(Service.LAUNCHER, PodName("launcher"), events.PodStarted(pod=PS, service=Service.PS, instance=PROCESS))
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:1"))
    for number, batches in ((0, 2), (1, 1)):  # Another worker had computed a batch of the last task before it died.
        task = TaskRef(purpose=Purpose.TRAIN, number=number)
        finished = events.TaskFinished(
            task=task,
            dispatch=1,
            attempt=1,
            absorbed_by=ABSORBED,
            records=10 * batches,
            batches=batches,
            counted=((0, batches),),
        )
        log.add(Service.WORKER, WORKER, finished)
    assert progress_snapshot(log.state, {}, 120.0, 0.0).batches == (4, 4)


def test_a_stopped_job_shows_returned_and_saved_batches(log: Log) -> None:
    log.add(Service.WORKER, WORKER, events.TaskReturned(
        task=TASK, dispatch=1, attempt=1, reason="SIGTERM", records=10, loss_sum=1.0, counted=((0, 1),)
    ))  # fmt: skip
    seen = progress_snapshot(log.state, {}, 120.0, 0.0)
    assert (seen.batches, seen.records) == ((3, 4), 30)
    ledger = GroupLedger(group=GroupId("g"), ledger=LedgerRecord(finished=((0, 2),), step=4), partitions=((0, 256),))
    taken = events.SnapshotTaken(manifest="file:///s/1", request=0, ledgers=(ledger,), size_bytes=1, seconds=0.1)
    log.add(Service.PS, PS, taken)
    assert progress_snapshot(log.state, {}, 120.0, 0.0).batches == (4, 4), "a killed worker reports nothing"


def test_batches_that_a_ps_lost_are_not_shown_as_progress() -> None:
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=SPEC))
    log.decide(commands.StartPod(pod=PS, service=Service.PS), commands.StartPod(pod=WORKER, service=Service.WORKER))
    log.add(Service.LAUNCHER, PodName("launcher"), events.PodStarted(pod=PS, service=Service.PS, instance=PROCESS))
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:1"))
    finished = events.TaskFinished(
        task=TASK, dispatch=1, attempt=1, absorbed_by=ABSORBED, records=20, batches=2, counted=((0, 2),)
    )
    log.add(Service.WORKER, WORKER, finished)
    assert progress_snapshot(log.state, {}, 120.0, 0.0).batches == (2, 4)
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobResumed(reason="resumed", continues=log.state.run))
    log.decide(commands.StartPod(pod=PS, service=Service.PS))
    log.add(Service.LAUNCHER, PodName("launcher"), events.PodStarted(pod=PS, service=Service.PS, instance=NEXT_PROCESS))
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:2", claim=1))
    assert progress_snapshot(log.state, {}, 120.0, 0.0).batches == (0, 4)


def test_the_history_of_a_task_has_all_of_its_events(log: Log) -> None:
    finish(log)
    turns = [entry.text for entry in task_history(log.records, TASK)]
    assert turns == [
        "dispatched (dispatch 1)",
        "received the task (dispatch 1, attempt 1)",
        "worker-0 exited (preempted) while computing batch 1",
        "returned the task to the queue, because its worker is gone",
        "received the task (dispatch 1, attempt 2)",
        "finished the task in 0.000 s: 2 batches, 20 records computed",
    ]


def test_every_record_fits_one_line(log: Log) -> None:
    finish(log)
    lines = [one_line(record) for record in log.records]
    assert all("\n" not in line for line in lines)
    assert "Dispatch 1 train 0-1" in lines[2]
    assert "exit_code=-9" in lines[10] and "cause=preempted" in lines[10]


def test_the_members_of_a_ring_are_named_without_their_addresses() -> None:
    names = [PodName(f"worker-{number}") for number in range(6)]
    members = tuple(RingMember(worker=name, incarnation=Incarnation(name), address="127.0.0.1:40000") for name in names)
    text = command_text(FormRing(generation=3, members=members, reason="worker-6 left"))
    assert f"members=({', '.join(names)}) reason=worker-6 left" in text


def test_the_progress_of_a_job(log: Log) -> None:
    seen = progress_snapshot(log.state, {}, 120.0, 5.0)
    assert (seen.epoch, seen.batches, seen.records, seen.loss) == ((1, 1), (2, 4), 20, 0.5)
    assert (seen.workers, seen.ps, seen.queue) == ((0, 2), (1, 1), (1, 0))
    assert seen.done == 0.5
    assert progress_line(seen) == (
        "[0:20] training  epoch 1/1  batch 2/4  5 records/s  loss 0.5000  workers 0/2  ps 1/1  queue 1 (0 in progress)"
    )


def test_the_rate_covers_the_last_seconds_only() -> None:
    rate = Rate()
    assert rate.update(0.0, 0) == 0.0
    assert rate.update(1.0, 100) == 100.0
    assert rate.update(100.0, 100) == 0.0


def test_without_a_terminal_progress_is_printed_when_it_changed() -> None:
    out = io.StringIO()
    view = PlainView(Console(file=out, width=200))
    for elapsed_s, records in ((0.0, 0), (1.0, 5), (6.0, 5), (7.0, 10), (20.0, 10)):
        view.update(ProgressSnapshot(state=JobState.TRAINING, records=records, elapsed_s=elapsed_s))
    assert [line.split()[0] for line in out.getvalue().splitlines()] == ["[0:00]", "[0:06]", "[0:20]"]


def test_the_reason_of_the_wait_for_the_first_batch_is_shown(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    log.state.job_state = JobState.TRAINING
    heartbeat = Heartbeat(
        service=Service.WORKER, name=WORKER, incarnation=Incarnation("i"), time_s=119.0, metrics={"batches": 0.0}
    )
    seen = progress_snapshot(log.state, {WORKER: heartbeat}, 120.0, 0.0)
    assert seen.waiting == "worker-0: building the model for the first batch"
    log.state.pods[WORKER].phase = PodPhase.RUNNING
    compiling = progress_snapshot(log.state, {WORKER: heartbeat}, 120.0, 0.0)
    assert compiling.waiting == "worker-0: compiling the model for the first batch"
    computed = replace(heartbeat, metrics={"batches": 1.0})
    assert progress_snapshot(log.state, {WORKER: computed}, 120.0, 0.0).waiting == ""

    out = io.StringIO()
    view = PlainView(Console(file=out, width=200))
    for elapsed_s in (0.0, 2.0, 6.0, 30.0, 60.0):
        view.update(replace(compiling, elapsed_s=elapsed_s))
    view.update(replace(compiling, elapsed_s=61.0, waiting=""))
    assert out.getvalue().splitlines()[1:] == ["[0:06] worker-0: compiling the model for the first batch"]

    shown = io.StringIO()
    live = TerminalView(Console(file=shown, width=200, force_terminal=True))
    live.update(compiling)
    live.close()
    assert "compiling the model" in shown.getvalue()


def test_goodput_is_shown_once_it_is_known() -> None:
    assert "goodput" not in progress_line(ProgressSnapshot(state=JobState.TRAINING))
    first_run = ProgressSnapshot(state=JobState.TRAINING, goodput=0.9712)
    assert "goodput 97%  workers" in progress_line(first_run)
    assert "goodput 97% since the resume  workers" in progress_line(replace(first_run, is_resumed=True))


def test_log_lines_are_made_readable(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('first\n{"level": "error", "event": "no way", "reason": "full", "pod": "ps-0"}\n')
    assert tail(path) == "first\nerror: no way reason=full"
    assert tail(path, lines=1) == "error: no way reason=full"
    assert tail(tmp_path / "none") == ""
    path.write_text('before\nFatal Python error: Aborted\n\nThread 1:\n  File "x"\n{"event": "next instance"}\n')
    assert tail(path) == "before\nFatal Python error: Aborted\ninfo: next instance"
    assert readable("{not json") == "{not json"


def test_the_last_error_is_reported_with_the_lines_after_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"event": "one"}\n{"event": "two"}\n{"level": "error", "event": "no way"}\n')
    assert last_error(path, 3) == "error: no way"
    path.write_text('{"event": "one"}\nno such setting\n')
    assert last_error(path, 3) == "info: one\nno such setting"
    path.write_text('{"level": "error", "event": "long ago"}\n' + "told since\n" * 5)
    assert last_error(path, 3) == "error: long ago\ntold since\ntold since"
    assert last_error(path, 1) == "error: long ago"


def test_printed_lines_are_shown_complete_and_once(tmp_path: Path) -> None:
    out = tmp_path / "worker-0.out"
    out.write_text("before\n")
    printed = NewLines(tmp_path)
    with out.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert printed.take() == [("worker-0", "one")]
        file.write("o\n")
        file.flush()
        assert printed.take() == [("worker-0", "two")]
    assert printed.take() == []


def test_children_share_the_cores_and_get_their_settings(tmp_path: Path) -> None:
    assert [threads_each(3, cores) for cores in (1, 2, 8)] == [1, 1, 2]
    base = {"PATH": "/bin", "OMP_NUM_THREADS": "9", "XDG_CACHE_HOME": str(tmp_path)}
    own = {"ELASTICDL_IDLE_POLL_S": "7", "ELASTICDL_LEASE_S": "1", "ELASTICDL_RUN_DIR": "/elsewhere"}
    base |= own
    run = RunDirectory(tmp_path, SPEC.job)
    environment = job_environment(base, SPEC, run, "secret", SPEC.envs)("nats://x", WORKER, Service.WORKER)
    settings = from_environment(WorkerSettings, environment)
    assert (settings.job, settings.pod, settings.token) == (SPEC.job, WORKER, "secret")
    assert (settings.idle_poll_s, settings.lease_s, settings.run_dir) == (7.0, 10.0, str(tmp_path / SPEC.job))
    assert environment["OMP_NUM_THREADS"] == "9", "the user's environment has priority"
    assert environment["MINE"] == "yes"
    assert environment["ELASTICDL_RUNNING_BATCHES"] == str(run.running_batches / "worker-0")
    seed = SPEC.plan.seed
    imports = import_environment(base, processes=SPEC.workers + SPEC.ps, seed=seed)
    read = imports.keys() - own.keys()
    assert {name: environment[name] for name in read} == {name: imports[name] for name in read}
    assert "MINE" not in job_environment(base, SPEC, run, "secret", SPEC.envs)(
        "nats://x", PodName("master"), Service.MASTER
    )


def test_restarts_are_reported_in_plain_words(log: Log) -> None:
    log.add(Service.MASTER, PodName("master"), events.TermStarted(term=1_795_298_981))
    assert log.shown[-1] == "The new master has recovered the job's state from the event log."
    log.add(
        Service.MASTER, PodName("master"), events.HeartbeatsMissed(pod=PS, incarnation=Incarnation("x"), silent_s=6.2)
    )
    assert log.shown[-1] == "No heartbeat from ps-0 for 6 s. Restarting it."


def test_a_full_storage_is_shown_with_what_follows() -> None:
    log = half_done()
    log.add(Service.PS, PS, events.StopRequested(reason="disk full: /storage can't be written"))
    assert log.shown[-1] == "disk full: /storage can't be written. Stopping the job; it can be resumed."


def test_the_elements_of_a_vector_metric_are_shown_together() -> None:
    metrics = {"loss": 0.5, "f1.0": 0.25, "f1.1": None, "precision.at.0": 1.0}
    assert metrics_text(metrics) == "loss 0.5000  f1 [0.2500 nan]  precision.at 1.0000"


def test_a_worker_that_hung_is_shown_with_the_place_where_it_hangs() -> None:
    log, messages = half_done(), EventMessages()
    started = events.PodStarted(pod=WORKER, service=Service.WORKER, instance=PROCESS)
    log.add(Service.LAUNCHER, PodName("launcher"), started)
    held = events.RunningBatch(task=TASK, batch=1)
    tail = 'error: no progress within the batch deadline of 3 s\n  File "/model.py", line 3, in feed'
    log.add(
        Service.LAUNCHER,
        PodName("launcher"),
        events.PodExited(
            pod=WORKER,
            service=Service.WORKER,
            instance=log.state.pods[WORKER].instance,
            cause=events.ExitCause.HUNG,
            exit_code=79,
            running_batches=(held,),
            log_tail=tail,
        ),
    )
    assert list(messages.lines(log.records[-1], log.state))[-3:] == [
        "worker-0 hung and ended itself while computing batch 1 of train 1. Its tasks are dispatched again.",
        "no progress within the batch deadline of 3 s",
        '  File "/model.py", line 3, in feed',
    ]
