"""What a job looks like at one moment: a small value for the eye, made from the folded log and the heartbeats. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.master.core import State
from elasticdl.master.core.training.state import Training
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import PodName, Service

BEAT_S_MAX = 5.0
"""A heartbeat older than this says nothing about now."""
RATE_S = 10.0
"""Records per second are taken over so many seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One moment of a job.

    Attributes:
        state: the job's state.
        epoch: the epoch being trained, from 1, and how many there are.
        batches: batches absorbed, as far as finished tasks and snapshots tell, and how many the plan has.
        records: records of finished tasks.
        records_per_s: over the last seconds; 0 when nothing is known.
        loss: mean loss of the epoch so far, or what workers say at the moment; None before the first.
        metrics: of the last evaluation or finished epoch.
        metrics_of: what ``metrics`` are about.
        workers: running workers, and how many are wanted.
        ps: running ps, and how many are wanted.
        queue: tasks dispatched and not finished, and how many of them are in somebody's hands.
        elapsed_s: since the job was submitted.
        goodput: batches absorbed by batches computed in this run; None: not known.
        waiting: what everybody waits for as long as no worker has computed a batch; empty after that.
    """

    state: JobState
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
    waiting: str = ""

    @property
    def done(self) -> float:
        """Part of the plan that is finished, 0 to 1."""
        have, want = self.batches
        return have / want if want else 0.0


class Rate:
    """Records per second over a sliding window."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, now_s: float, records: int) -> float:
        """Note the count of this moment; returns the rate over the window, 0 until there are two moments in it."""
        self._seen.append((now_s, records))
        while len(self._seen) > 2 and self._seen[0][0] < now_s - RATE_S:
            self._seen.popleft()
        first_s, first = self._seen[0]
        return max(0, records - first) / (now_s - first_s) if now_s > first_s else 0.0


def records_of(state: State) -> int:
    """Records of finished tasks, each counted once."""
    return sum(totals.records for totals in state.training.epochs.values()) if state.training else 0


def picture(state: State, beats: Mapping[PodName, Beat], now_s: float, records_per_s: float) -> Picture:
    """Draw a job at ``now_s``.

    Args:
        state: folded from the log.
        beats: the last heartbeat of each process.
        now_s: seconds since the epoch.
        records_per_s: from ``Rate``.
    """
    spec, training = state.spec, state.training
    if spec is None or training is None:
        return Picture(state=state.job_state)
    metrics, metrics_of = _metrics(state)
    return Picture(
        state=state.job_state,
        epoch=(min(training.epochs_complete + 1, spec.plan.epochs_run), spec.plan.epochs_run),
        batches=(_batches(state, training), spec.plan.batches),
        records=records_of(state),
        records_per_s=records_per_s,
        loss=_loss(training, beats, now_s),
        metrics=metrics,
        metrics_of=metrics_of,
        workers=(len(state.running(Service.WORKER)), state.workers),
        ps=(len(state.running(Service.PS)), state.ps),
        queue=(len(training.outstanding), len(state.running_attempts)),
        elapsed_s=max(0.0, (state.ended_s or now_s) - state.submitted_s - state.paused_s),
        waiting=_waiting(state, beats),
    )


def _waiting(state: State, beats: Mapping[PodName, Beat]) -> str:
    """A model is built, traced and, at its first batch, compiled: minutes for a long recurrence."""
    if state.job_state is not JobState.TRAINING:
        return ""
    workers = [beat for beat in beats.values() if beat.service is Service.WORKER]
    if not workers or any(beat.metrics.get("batches", 0.0) for beat in workers):
        return ""
    ready = {pod.name for pod in state.running(Service.WORKER)}
    names = ", ".join(sorted(beat.name for beat in workers))
    each = "its" if len(workers) == 1 else "their"
    return f"{names}: {'compiling' if ready else 'building'} {each} model for the first batch"


def _batches(state: State, training: Training) -> int:
    """Batches that workers told of, or all ps saved.

    Of tasks that only ledgers know of, and of those that a ps lost after they were told of, about as many as usual.
    """
    plan = training.plan
    if training.is_complete:
        return plan.batches  # Tasks that several workers shared were told by each of them in part.
    told = sum(totals.batches for totals in training.epochs.values())
    untold = len(training.complete) - len(training.statistics.counted)
    saved = min((state.snapshots[ps].step if ps in state.snapshots else 0 for ps in state.holders), default=0)
    return min(max(told + untold * plan.batches // max(plan.tasks, 1), saved), plan.batches)


def _loss(training: Training, beats: Mapping[PodName, Beat], now_s: float) -> float | None:
    """What workers say now or, where nobody does, the mean of the last epoch that was begun."""
    fresh = [beat for beat in beats.values() if beat.time_s > now_s - BEAT_S_MAX and "loss" in beat.metrics]
    if fresh:
        return sum(beat.metrics["loss"] for beat in fresh) / len(fresh)
    return training.epochs[max(training.epochs)].loss if training.epochs else None


def _metrics(state: State) -> tuple[Mapping[str, float], str]:
    for evaluation in reversed(state.evaluations):
        if evaluation.results:
            return evaluation.results, f"validation at step {evaluation.step}"
    if state.training:
        for epoch, totals in sorted(state.training.epochs.items(), reverse=True):
            if totals.results:
                return totals.results, f"training, epoch {epoch + 1}"
    return {}, ""
