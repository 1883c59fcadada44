"""What the time of a job goes to: causes, in words for people, with what to do about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Cause(Enum):
    """What a part of the wall time goes to."""

    COMPUTING = "computing"
    EVALUATING = "evaluating"
    DATA = "data"
    PS = "ps"
    OTHER_WORKERS = "other_workers"
    SLOW_WORKER = "slow_worker"
    RECOMPUTED = "recomputed"
    STALLED = "stalled"
    LOST_PS = "lost_ps"
    LOST_WORKER = "lost_worker"
    UNREPORTED = "unreported"
    NO_TASK = "no_task"
    LAST_TASKS = "last_tasks"
    PREPARING = "preparing"
    PENDING = "pending"
    STARTING = "starting"
    SNAPSHOTS = "snapshots"
    FINAL_EVALUATION = "final_evaluation"
    EXPORT = "export"
    ENDING = "ending"
    PAUSED = "paused"
    OTHER = "other"

    # The hash of ``Enum`` is a Python function, which takes longer than all else that is done with a cause.
    __hash__ = object.__hash__


USEFUL = frozenset({Cause.COMPUTING, Cause.EVALUATING, Cause.FINAL_EVALUATION, Cause.EXPORT})
"""Causes that are the job's purpose: no time is lost by them."""
WORK = (Cause.COMPUTING, Cause.DATA, Cause.PS, Cause.OTHER_WORKERS)
"""Causes that the batches of a worker are charged to; a slow worker's batches take longer in these."""


@dataclass(frozen=True, slots=True)
class Words:
    """A cause in words: what happens, and what to do if it is much."""

    title: str
    advice: str = ""


WORDS: Mapping[Cause, Words] = MappingProxyType(
    {
        Cause.COMPUTING: Words("computing batches"),
        Cause.EVALUATING: Words(
            "evaluating and merging metrics while training", "Evaluate less often, or on less validation data."
        ),
        Cause.DATA: Words(
            "waiting for data",
            "Simplify feed(), use Parquet or TFRecord, keep remote data in --data_cache_dir, or add workers.",
        ),
        Cause.PS: Words(
            "waiting for pulls and pushes",
            "Use larger minibatches (--minibatch_size), a smaller model, or more parameter servers, if it has some.",
        ),
        Cause.OTHER_WORKERS: Words(
            "waiting for other workers' updates",
            "One slow worker delays all others here. With parameter servers, asynchronous training or a larger "
            "--max_staleness waits less.",
        ),
        Cause.SLOW_WORKER: Words(
            "a worker that is slower than the others",
            "Look at its machine: other programs, less CPU than the others have, slow access to the data.",
        ),
        Cause.RECOMPUTED: Words(
            "computing batches again that a lost ps had absorbed",
            "Take snapshots more often: --checkpoint_steps.",
        ),
        Cause.STALLED: Words(
            "a batch or a process that made no progress",
            "Look at its log: elasticdl logs JOB WORKER. A shorter --batch_deadline_secs replaces it earlier.",
        ),
        Cause.LOST_PS: Words(
            "a parameter server was away",
            "Find out why it ended: its exit and its log. If memory ran out, add a ps or give it more memory.",
        ),
        Cause.LOST_WORKER: Words(
            "replacing workers that ended", "Find out why they ended: their exits name the cause, their logs say more."
        ),
        Cause.UNREPORTED: Words("work on tasks that their worker did not report"),
        Cause.NO_TASK: Words(
            "workers without a task",
            "Use smaller tasks (--num_minibatches_per_task), or fewer workers. A master that was away dispatches none.",
        ),
        Cause.LAST_TASKS: Words(
            "waiting for the last tasks of other workers", "Use smaller tasks: --num_minibatches_per_task."
        ),
        Cause.PREPARING: Words(
            "checking data and model before the job starts", "A second job on the same data uses its index again."
        ),
        Cause.PENDING: Words(
            "waiting until pods can start", "Their reasons are in the events: no place on the cluster, images, imports."
        ),
        Cause.STARTING: Words(
            "starting processes, building and compiling the model", "A simpler model or larger batches compile faster."
        ),
        Cause.SNAPSHOTS: Words("last snapshots and audit"),
        Cause.FINAL_EVALUATION: Words("last evaluation and metrics"),
        Cause.EXPORT: Words("exporting the model"),
        Cause.ENDING: Words("ending the processes"),
        Cause.PAUSED: Words("stopped between two runs"),
        Cause.OTHER: Words("other work of the workers"),
    }
)
