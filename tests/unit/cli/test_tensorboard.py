"""The TensorBoard event files of a job, read back with TensorBoard's own reader."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.util.tensor_util import make_ndarray
from tests.histories.logs import FOLDER, SUFFIX, read_log
from tests.unit.cli.job_log import ABSORBED, NEXT_PROCESS, PLAN, PROCESS, PS, SPEC, WORKER, Log, finish, half_done

from elasticdl.master.core.fold import fold
from elasticdl.master.tensorboard import event_files
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import commands, events
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.names import GroupId, PodName, Purpose, Service
from elasticdl.shared.storage import MemoryStore, open_store, to_uri
from elasticdl.views.curves import Point, Run, points
from elasticdl.views.history import epoch_rows, evaluation_rows

STARTED_S = 100.0


def complete() -> Log:
    """A job of one epoch whose metrics a worker has computed."""
    log = half_done()
    finish(log)
    log.decide(commands.Dispatch(purpose=Purpose.MERGE, dispatch=2, tasks=((1, 2),), label="epoch", evaluation=0))
    merge = TaskRef(purpose=Purpose.MERGE, number=1)
    log.add(
        Service.WORKER,
        WORKER,
        events.TaskTaken(task=merge, dispatch=2, attempt=1, reply="r3"),
        events.TaskFinished(
            task=merge, dispatch=2, attempt=1, records=40, batches=4,
            results={"loss": 0.75, "accuracy": 0.5},
        ),
    )  # fmt: skip
    measured = RunMeasured(started_s=STARTED_S, batches_absorbed=4, batches_computed=5)
    log.add(Service.LAUNCHER, PodName("launcher"), measured)
    return log


def read(folder: Path, run: Run) -> dict[str, list[tuple[Any, Any, Any]]]:
    """Tag -> (step, time, value) as TensorBoard reads a folder."""
    accumulator = EventAccumulator(str(folder / run), size_guidance={"tensors": 0})  # By default, 10 of each tag.
    accumulator.Reload()
    return {
        tag: [(one.step, one.wall_time, float(make_ndarray(one.tensor_proto))) for one in accumulator.Tensors(tag)]
        for tag in accumulator.Tags()["tensors"]
    }


def write(folder: Path, log: Log) -> int:
    uri = to_uri(folder)
    return event_files.write(open_store(uri), uri, "digits", list(points(log.records)), STARTED_S)


def test_tensorboard_reads_the_curves_of_a_job(tmp_path: Path) -> None:
    log = complete()
    assert write(tmp_path, log) == 1
    curves = read(tmp_path, Run.TRAIN)
    times = {record.seq: record.envelope.time_s for record in log.records}
    finished = [
        record.seq
        for record in log.records
        if isinstance(record.envelope.event, events.TaskFinished)
        and record.envelope.event.task.purpose is Purpose.TRAIN
    ]
    first_s, second_s = (times[seq] for seq in finished)
    began_s = log.state.first_step_s
    assert curves["epoch_loss"] == [(0, second_s, 0.75)]
    assert curves["epoch_accuracy"] == [(0, second_s, 0.5)]
    assert curves["records_per_second"] == [
        (2, first_s, pytest.approx(20 / (first_s - began_s))),
        (4, second_s, pytest.approx(20 / (second_s - first_s))),
    ]
    assert curves["staleness"] == [(2, first_s, 1.5)], "the second task has pushed nothing stale that is known"
    assert [(step, value) for step, _, value in curves["workers"]] == [(2, 1.0), (4, 0.0)]
    assert curves["goodput"] == [(4, times[len(log.records)], pytest.approx(0.8))]
    assert not (tmp_path / Run.VALIDATION).exists()


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}")))
def test_the_curves_of_recorded_jobs_are_those_of_their_history(name: str, tmp_path: Path) -> None:
    records = list(read_log(FOLDER / f"{name}{SUFFIX}"))
    state, uri = fold(records), to_uri(tmp_path)
    event_files.write(open_store(uri), uri, name, list(points(records)), STARTED_S)
    trained, rows = read(tmp_path, Run.TRAIN)["epoch_loss"], epoch_rows(state)
    assert [step for step, _, _ in trained] == [row["epoch"] - 1 for row in rows]
    assert [value for _, _, value in trained] == pytest.approx([row["loss"] for row in rows])
    evaluations = evaluation_rows(state)
    validated = read(tmp_path, Run.VALIDATION) if evaluations else {}
    found = validated.get("evaluation_loss_vs_iterations", [])
    assert [step for step, _, _ in found] == [row["step"] for row in evaluations]
    assert [value for _, _, value in found] == pytest.approx([row["metrics"]["loss"] for row in evaluations])
    ends = [row["epoch"] - 1 for row in evaluations if row["epoch_end"]]
    assert [step for step, _, _ in validated.get("epoch_loss", [])] == ends
    assert all(state.submitted_s <= time_s <= state.now_s for _, time_s, _ in trained + found)


def test_tasks_that_are_reported_together_are_one_sample() -> None:
    log = half_done()
    finish(log)
    *before, last = log.records
    first_s = next(point.time_s for point in points(before) if point.tag == "records_per_second")
    together = replace(last, envelope=replace(last.envelope, time_s=first_s + 0.001))
    earlier = [record for record in before if record.envelope.time_s <= first_s + 0.001]
    rates = [point.step for point in points([*earlier, together]) if point.tag == "records_per_second"]
    assert rates == [2], "a rate over a millisecond says nothing"


def test_an_epoch_has_no_point_before_its_metrics(tmp_path: Path) -> None:
    log = half_done()
    finish(log)
    assert "epoch_loss" not in {point.tag for point in points(log.records)}


def resumed_without_log(*rows: tuple[int, int, float]) -> Log:
    """A job of three epochs of two tasks that continues in the middle of its second epoch, after its log was lost.

    Args:
        rows: of the history file: epoch from 1, batches of it that are known, and loss.
    """
    plan = replace(PLAN, epochs=3)
    unknown: dict[str, Any] = {"metrics": {}, "validation": {}, "seconds": 0.0}
    history = "".join(
        json.dumps({"epoch": epoch, "loss": loss, "batches": batches} | unknown) + "\n" for epoch, batches, loss in rows
    )
    ledger = LedgerRecord(finished=((0, 3),), step=6)
    log = Log()
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobSubmitted(spec=replace(SPEC, plan=plan)))
    log.add(Service.LAUNCHER, PodName("launcher"), events.JobResumed(reason="", lost=events.LostLog(history=history)))
    log.add(Service.MASTER, PodName("master"), events.TermStarted(term=1))
    log.decide(commands.StartPod(pod=PS, service=Service.PS), commands.StartPod(pod=WORKER, service=Service.WORKER))
    log.add(Service.LAUNCHER, PodName("launcher"), events.PodStarted(pod=PS, service=Service.PS, instance=PROCESS))
    log.add(
        Service.LAUNCHER,
        PodName("launcher"),
        events.PodStarted(pod=WORKER, service=Service.WORKER, instance=NEXT_PROCESS),
    )
    held = events.GroupLedger(group=GroupId("g"), partitions=((0, PARTITIONS),), ledger=ledger)
    log.add(Service.PS, PS, events.PsStarted(address="127.0.0.1:1", ledgers=(held,)))
    log.decide(
        commands.EnterState(state=commands.JobState.TRAINING),
        commands.Dispatch(purpose=Purpose.TRAIN, dispatch=1, tasks=((3, 6),)),
    )
    for number in (3, 4, 5):
        task = TaskRef(purpose=Purpose.TRAIN, number=number)
        log.add(
            Service.WORKER,
            WORKER,
            events.TaskTaken(task=task, dispatch=1, attempt=1, reply="r"),
            events.TaskFinished(
                task=task, dispatch=1, attempt=1, absorbed_by=ABSORBED, records=20, counted=((0, 2),), loss_sum=2.0
            ),
        )
    for merge in (1, 2):
        log.decide(
            commands.Dispatch(
                purpose=Purpose.MERGE, dispatch=1 + merge, tasks=((merge, merge + 1),), label="epoch", evaluation=merge
            )
        )
        ref = TaskRef(purpose=Purpose.MERGE, number=merge)
        result = {"loss": merge / 4}
        log.add(
            Service.WORKER,
            WORKER,
            events.TaskFinished(
                task=ref, dispatch=1 + merge, attempt=1, records=20 * merge, batches=2 * merge, results=result
            ),
        )
    return log


@pytest.mark.parametrize(
    ("rows", "losses"),
    [
        (((1, 4, 9.0), (2, 1, 8.0)), {0: 9.0, 1: 0.25, 2: 0.5}),
        (((1, 4, 9.0), (2, 3, 8.0)), {0: 9.0, 1: 8.0, 2: 0.5}),
        (((1, 3, 9.0),), {0: 9.0, 1: 0.25, 2: 0.5}),
        ((), {1: 0.25, 2: 0.5}),
    ],
    ids=["the epoch in progress", "the lost part knows more", "a killed worker", "no history"],
)
def test_after_a_lost_log_each_epoch_has_the_loss_that_knows_most_of_it(
    rows: tuple[tuple[int, int, float], ...], losses: dict[int, float]
) -> None:
    found = list(points(resumed_without_log(*rows).records))
    assert {point.step: point.value for point in found if point.tag == "epoch_loss"} == losses
    assert len([point for point in found if point.tag == "epoch_loss"]) == len(losses), "one point for each epoch"


def test_after_a_lost_log_steps_continue_behind_what_the_ledgers_have() -> None:
    log = resumed_without_log()
    measured = RunMeasured(started_s=STARTED_S, batches_absorbed=6, batches_computed=6)
    log.add(Service.LAUNCHER, PodName("launcher"), measured)
    found = list(points(log.records))
    assert [point.step for point in found if point.tag == "records_per_second"] == [10, 12]
    assert [point.value for point in found if point.tag == "records_per_second"] == [10.0, 10.0]
    assert [point.step for point in found if point.tag == "goodput"] == [12]


def test_the_points_of_part_of_a_log_are_the_first_of_the_whole() -> None:
    records = complete().records
    whole = list(points(records))
    for end in range(len(records)):
        part = list(points(records[:end]))
        assert part == whole[: len(part)]


def test_writing_again_appends_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, half_done())
    (file,) = (tmp_path / Run.TRAIN).iterdir()
    before, inode = file.read_bytes(), file.stat().st_ino
    log = complete()
    assert write(tmp_path, log) == 1
    after = file.read_bytes()
    assert after.startswith(before)
    assert file.stat().st_ino == inode, "a TensorBoard that has it open reads on"
    assert write(tmp_path, log) == 0
    assert file.read_bytes() == after
    assert list((tmp_path / Run.TRAIN).iterdir()) == [file]


def test_a_file_that_was_cut_short_or_is_damaged_is_repaired(tmp_path: Path) -> None:
    log = complete()
    write(tmp_path, log)
    (file,) = (tmp_path / Run.TRAIN).iterdir()
    content = file.read_bytes()
    for damaged in (content[:-3], b"", b"x" * 10, content + b"x"):
        file.write_bytes(damaged)
        assert write(tmp_path, log) == 1
        assert file.read_bytes() == content


def test_points_are_encoded_as_the_package_encodes_them() -> None:
    values = (0.5, -0.1, math.nan, math.inf, 0.0, 1e-45)
    given = [
        Point(run=Run.TRAIN, tag=f"tag{number}", step=number, time_s=100.25 + number, value=value)
        for number, value in enumerate(values)
    ]
    file = io.BytesIO()
    writer = RecordWriter(file)
    writer.write(Event(wall_time=STARTED_S, file_version="brain.Event:2").SerializeToString())
    for point in given:
        event = Event(wall_time=point.time_s, step=point.step, summary=scalar_pb(point.tag, point.value))
        writer.write(event.SerializeToString(deterministic=True))
    assert event_files.encode(given, STARTED_S) == file.getvalue()


def test_object_storage_has_the_same_files(tmp_path: Path) -> None:
    log, store = complete(), MemoryStore()
    for records in (half_done().records, log.records):
        event_files.write(store, "memory://logs", "digits", list(points(records)), STARTED_S)
    write(tmp_path, log)
    (file,) = (tmp_path / Run.TRAIN).iterdir()
    (found,) = store.list("memory://logs/")
    assert store.read(found.uri) == file.read_bytes()
