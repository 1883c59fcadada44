"""The progress of a job at one moment, from its folded log and the heartbeats of its processes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.master.core import State
from elasticdl.master.core.training.state import Training
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import PodName, Service

HEARTBEAT_AGE_S_MAX = 5.0
"""Seconds after which a heartbeat is too old to say anything about the present."""
RATE_S = 10.0
"""Seconds over which records per second are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSnapshot:
    """The progress of a job at one moment.

    Attributes:
        kind: what the job does; batches and records are those that are trained, evaluated or predicted.
        epoch: the epoch being trained, from 1, and how many there are.
        batches: absorbed batches, by finished tasks and snapshots, and the batches of the plan.
        records_per_s: over the last seconds; 0: unknown.
        loss: current loss by the workers' heartbeats, or mean loss of the latest epoch; None: unknown.
        metrics: of the latest evaluation or finished epoch.
        metrics_of: which evaluation or epoch that is.
        workers: running workers, and the target number.
        ps: running ps, and the target number.
        ring: workers in the ring; None: the job has ps.
        queue: tasks dispatched and not finished, and how many of them workers are computing.
        elapsed_s: since the job was submitted.
        goodput: batches absorbed by batches computed in this run; None: unknown.
        is_resumed: whether this run is not the job's first.
        waiting: what the job waits for until a worker has computed the first batch; empty after that.
        counts_batches: whether a record is a batch.
    """

    state: JobState
    kind: JobKind = JobKind.TRAIN
    epoch: tuple[int, int] = (0, 0)
    batches: tuple[int, int] = (0, 0)
    records: int = 0
    records_per_s: float = 0.0
    loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    metrics_of: str = ""
    workers: tuple[int, int] = (0, 0)
    ps: tuple[int, int] = (0, 0)
    queue: tuple[int, int] = (0, 0)
    elapsed_s: float = 0.0
    goodput: float | None = None
    is_resumed: bool = False
    waiting: str = ""
    ring: int | None = None
    counts_batches: bool = False

    @property
    def done(self) -> float:
        """Finished part of the plan, 0 to 1."""
        absorbed, planned = self.batches
        return absorbed / planned if planned else 0.0


class Rate:
    """Records per second over a sliding window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, now_s: float, records: int) -> float:
        """Add the count at this moment; returns the rate over the window, 0 until the window holds two moments."""
        self._seen.append((now_s, records))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - RATE_S:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return max(0, records - first) / (now_s - first_s) if now_s > first_s else 0.0


def records_of(state: State) -> int:
    """Records of finished tasks, each counted once."""
    if state.spec and state.spec.prediction:
        return state.prediction.records
    if state.spec and not state.spec.kind.trains:
        return state.evaluations[-1].records if state.evaluations else 0
    return state.training.statistics.records if state.training else 0


def progress_snapshot(
    state: State, heartbeats: Mapping[PodName, Heartbeat], now_s: float, records_per_s: float
) -> ProgressSnapshot:
    """The progress at ``now_s``."""
    spec, training = state.spec, state.training
    if spec is None or training is None:
        return ProgressSnapshot(state=state.job_state)
    metrics, metrics_of = _metrics(state)
    return ProgressSnapshot(
        state=state.job_state,
        kind=spec.kind,
        epoch=(min(training.epochs_complete + 1, spec.plan.epochs_run), spec.plan.epochs_run),
        batches=(_batches(state, training), spec.work.batches),
        records=records_of(state),
        records_per_s=records_per_s,
        loss=_loss(training, heartbeats, now_s),
        metrics=metrics,
        metrics_of=metrics_of,
        workers=(len(state.running(Service.WORKER)), state.workers),
        ps=(sum(not pod.is_hosted for pod in state.running(Service.PS)), state.ps - spec.has_ring),
        queue=(len(training.outstanding), len(state.running_attempts)),
        elapsed_s=max(0.0, (state.ended_s or now_s) - state.submitted_s - state.paused_s),
        waiting=_waiting(state, heartbeats),
        is_resumed=state.resumes > 0,
        ring=_members(state) if spec.has_ring else None,
        counts_batches=spec.plan.counts_batches,
    )


def _members(state: State) -> int:
    """Members of the ring whose processes run."""
    return sum(state.is_member(member.worker, member.incarnation) for member in state.ring.members)


def _waiting(state: State, heartbeats: Mapping[PodName, Heartbeat]) -> str:
    """Workers that build or compile the model, which takes minutes for a long recurrent model."""
    if state.job_state is not JobState.TRAINING:
        return ""
    workers = [heartbeat for heartbeat in heartbeats.values() if heartbeat.service is Service.WORKER]
    if not workers or any(heartbeat.metrics.get("batches", 0.0) for heartbeat in workers):
        return ""
    ready = {pod.name for pod in state.running(Service.WORKER)}
    names = ", ".join(sorted(heartbeat.name for heartbeat in workers))
    return f"{names}: {'compiling' if ready else 'building'} the model for the first batch"


def _batches(state: State, training: Training) -> int:
    """Batches that workers reported or that all ps have saved.

    For finished tasks without a report, which only ledgers know, the mean number of batches per task is used.
    """
    if not state.job.kind.trains:
        data = state.job.work
        return data.batches * records_of(state) // max(data.records, 1)
    plan = training.plan
    if training.is_complete:
        return plan.batches  # Workers report parts of a task that several of them shared.
    reported = training.statistics.batches
    unreported = len(training.complete) - len(training.statistics.counted)
    saved = min((state.snapshots[ps].step if ps in state.snapshots else 0 for ps in state.holders), default=0)
    return min(max(reported + unreported * plan.batches // max(plan.tasks, 1), saved), plan.batches)


def _loss(training: Training, heartbeats: Mapping[PodName, Heartbeat], now_s: float) -> float | None:
    """The mean loss in recent heartbeats; without any, the mean loss of the latest epoch."""
    fresh = [
        heartbeat
        for heartbeat in heartbeats.values()
        if heartbeat.time_s > now_s - HEARTBEAT_AGE_S_MAX and "loss" in heartbeat.metrics
    ]
    if fresh:
        return sum(heartbeat.metrics["loss"] for heartbeat in fresh) / len(fresh)
    return training.epochs[max(training.epochs)].loss if training.epochs else None


def _metrics(state: State) -> tuple[Mapping[str, float], str]:
    for evaluation in reversed(state.evaluations):
        if evaluation.results:
            return evaluation.results, f"validation at step {evaluation.step}"
    if state.training:
        epoch = max((number for number, totals in state.training.epochs.items() if totals.results), default=None)
        if epoch is not None:
            return state.training.epochs[epoch].results, f"training, epoch {epoch + 1}"
    return {}, ""
