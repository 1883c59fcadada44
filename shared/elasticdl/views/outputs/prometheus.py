"""A job as metrics for Prometheus, from its folded log. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from elasticdl.master.core import State
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.monitoring.exposition import Family, text_of
from elasticdl.shared.monitoring.processes import families_of
from elasticdl.shared.names import JobId
from elasticdl.views.points import ORDERED_ENDS
from elasticdl.views.progress import progress_snapshot
from elasticdl.views.statistics import staleness_facts
from elasticdl.views.tasks import task_counts
from elasticdl.views.wall_time.fold import WallTimeFold
from elasticdl.views.wall_time.values import WallTime

JOB_LABEL = "training_job"
"""Label of all metrics of a job. Prometheus calls what it scrapes ``job``."""


class JobMetrics:
    """Counts what the folded state of a job does not hold; ``text`` adds what it does.

    Attributes:
        events: the number of the last record.
    """

    def __init__(self) -> None:
        self.events = 0
        self._wall_time = WallTimeFold()
        self._exits: Counter[tuple[str, str]] = Counter()
        self._failures: Counter[str] = Counter()
        self._last_s = 0.0

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        self.events, self._last_s = record.seq, record.envelope.time_s
        self._wall_time.take(record)
        match record.envelope.event:
            case events.PodExited() as exit_ if exit_.cause not in ORDERED_ENDS:
                self._exits[exit_.service.value, exit_.cause.value] += 1
            case events.TaskFailed() as failed:
                self._failures[failed.kind.value] += 1
            case _:
                pass

    def text(self, job: JobId, state: State, heartbeats: Iterable[Heartbeat] = ()) -> str:
        """All metrics; of the processes only if their heartbeats are given."""
        families = [*self._job(state), *self._counted(), *_seconds(self._wall_time.result())]
        return text_of([*families, *families_of(heartbeats)], common={JOB_LABEL: job})

    def _counted(self) -> Iterable[Family]:
        exits = Family("elasticdl_job_lost_processes_total", "counter", "Processes that ended without an order.")
        for (service, cause), number in sorted(self._exits.items()):
            exits.add(number, service=service, cause=cause)
        failures = Family("elasticdl_job_failed_tasks_total", "counter", "Attempts at tasks that failed, by kind.")
        for kind, number in sorted(self._failures.items()):
            failures.add(number, kind=kind)
        yield exits
        yield failures
        yield Family("elasticdl_job_events_total", "counter", "Events on the log of the job.").add(self.events)
        about = "Time of the last event on the log."
        yield Family("elasticdl_job_last_event_timestamp_seconds", "gauge", about).add(self._last_s)

    def _job(self, state: State) -> Iterable[Family]:
        states = Family("elasticdl_job_state", "gauge", "1 for the state that the job is in.")
        for each in JobState:
            states.add(float(each is state.job_state), state=each.value)
        yield states
        if state.spec is None or state.training is None:
            return
        progress = progress_snapshot(state, {}, state.now_s, 0.0)
        yield _gauge("epoch", "Epoch that is trained, from 1.", progress.epoch[0])
        yield _gauge("epochs", "Epochs of the plan.", progress.epoch[1])
        about = "Batches that the model has absorbed. It falls when a ps loses some."
        yield _gauge("absorbed_batches", about, progress.batches[0])
        yield _gauge("planned_batches", "Batches of the plan.", progress.batches[1])
        yield _gauge("records", "Records of finished tasks, each counted once.", progress.records)
        yield _gauge("elapsed_seconds", "Since the job was submitted, without pauses.", progress.elapsed_s)
        processes = Family("elasticdl_job_processes", "gauge", "Processes, running and wanted.")
        for service, (running, wanted) in (("worker", progress.workers), ("ps", progress.ps)):
            processes.add(running, service=service, which="running").add(wanted, service=service, which="wanted")
        yield processes
        tasks = Family("elasticdl_job_tasks", "gauge", "Training tasks by state.")
        for name, number in task_counts(state).items():
            if name != "all":
                tasks.add(number, state=name)
        yield tasks
        if progress.loss is not None and math.isfinite(progress.loss):
            yield _gauge("loss", "Mean loss of the latest epoch, so far.", progress.loss)
        metrics = Family("elasticdl_job_metric", "gauge", "The latest metrics of the model, by name.")
        for name, value in sorted(progress.metrics.items()):
            metrics.add(value, metric=name)
        yield metrics
        staleness = staleness_facts(state)
        if staleness.get("mean") is not None:
            about = "Mean updates between the pull and the absorption of a batch."
            yield _gauge("staleness_updates", about, staleness["mean"])
        snapshots = Family("elasticdl_job_snapshot_timestamp_seconds", "gauge", "When a ps took its last snapshot.")
        for ps, snapshot in sorted(state.snapshots.items()):
            snapshots.add(snapshot.time_s, process=str(ps))
        yield snapshots


def _gauge(name: str, about: str, value: float) -> Family:
    return Family(f"elasticdl_job_{name}", "gauge", about).add(value)


def _seconds(found: WallTime) -> Iterable[Family]:
    wall = Family("elasticdl_job_wall_seconds", "gauge", "Wall time of the job until the last event.")
    causes = Family("elasticdl_job_cause_seconds", "gauge", "Where the wall time went, by cause; the causes sum to it.")
    for part in found.parts:
        causes.add(part.seconds, cause=part.cause.value)
    if found.job:
        yield wall.add(found.wall_s)
        yield causes
