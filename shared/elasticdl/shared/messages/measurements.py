"""Events with what was measured: the work of a run, what its processes have used, and what tables hold."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasured:
    """The work of a run so far, by the heartbeats of its processes; the last one of a run counts.

    Attributes:
        started_s: when the user entered the command, seconds since 1970.
        first_gradient_s: when a ps first applied a gradient; 0: none has.
        batches_computed: batches that workers have computed, repeated ones too.
        working_s, stalled_s, starting_s: seconds of all expected workers until the end of training.
        data_fetched_bytes: bytes that they have returned.
        data_cached_bytes: bytes of data that workers have read from their disks in their place.
        ended_s: when the run ended; 0: it has not.
        abort_reason: why the run ended before its master ended it, or empty.
        is_interrupted: whether the user asked for its end.
    """

    started_s: float
    first_gradient_s: float = 0.0
    batches_absorbed: int = 0
    batches_computed: int = 0
    working_s: float = 0.0
    stalled_s: float = 0.0
    starting_s: float = 0.0
    ended_s: float = 0.0
    abort_reason: str = ""
    is_interrupted: bool = False
    data_requests: int = 0
    data_fetched_bytes: int = 0
    data_cached_bytes: int = 0

    @property
    def data(self) -> dict[str, int]:
        """What reading data from object storage has cost, by name."""
        fetched, cached = self.data_fetched_bytes, self.data_cached_bytes
        return {"requests": self.data_requests, "fetched_bytes": fetched, "cached_bytes": cached}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMeasured:
    """What the processes of one name have used in a run that has ended.

    Attributes:
        process: the name: a pod, or a process that is on no pod, such as ``nats-server``.
        cpu_s: CPU seconds.
        restarts: starts after an exit that was not ordered.
    """

    process: PodName
    cpu_s: float
    rss_max_bytes: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounted:
    """A ps has counted the rows of a table with ``min_count`` or ``expire_after``, for the last snapshot of a run.

    Attributes:
        candidates: ids that updates have contained, but not often enough for a row.
        admitted: rows that were stored since training began, each as often as it was.
        dropped: gradients of single rows that were dropped because their ids were candidates.
    """

    table: str
    rows: int
    candidates: int
    admitted: int
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSlow:
    """A worker has made no progress on a batch for long, or that batch has ended after all.

    Attributes:
        task, batch: the batch; batch 0 of a task without batches.
        work: what the worker does with it, for people: ``reading and feeding batch 3 of task train 2``.
        seconds: since when; 0: it has ended.
    """

    task: TaskRef
    batch: int
    work: str
    seconds: float
