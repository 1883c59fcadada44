"""The deliveries that this worker leases, and whether their leases are extended."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.names import Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedTask:
    """One delivery of a task.

    Attributes:
        number: identifies the delivery among those of this worker.
        attempt: which delivery of this message it is, from 1.
        reply: where any client may return the delivery to the queue.
        is_first: whether no other delivery of the task is known to the queue or the master, so that no worker has begun
            it. The ps may know better, if the log was lost.
    """

    number: int
    message: TaskMessage
    attempt: int
    reply: str = ""
    is_first: bool = False


class LeasedTasks:
    """All leases of a worker.

    A lease is extended only while the last progress is younger than the deadline: a worker that hangs anywhere, in a
    push for example, loses its tasks to other workers. It takes no tasks either: the queue would deliver its own tasks
    to it again. The watchdog replaces a worker that hangs in user code.

    Args:
        lease_s: seconds after which the broker delivers a task again unless its lease is extended.
        deadline_s: seconds without progress.
    """

    def __init__(self, *, lease_s: float, deadline_s: float) -> None:
        self.interval_s = lease_s / 3
        """Seconds between two extensions."""
        self._deadline_s = deadline_s
        self._leased: dict[TaskRef, list[LeasedTask]] = {}
        self._progress_s = 0.0
        self.progress_count = 0

    @property
    def tasks(self) -> tuple[TaskRef, ...]:
        """The leased tasks, oldest first."""
        return tuple(self._leased)

    def add(self, lease: LeasedTask, now_s: float) -> None:
        """Keep a delivery. The same task may be delivered twice: after an expired lease, or by a second dispatch."""
        if not self._leased:
            self._progress_s = now_s
        self._leased.setdefault(lease.message.task, []).append(lease)

    def has(self, task: TaskRef) -> bool:
        """Whether any delivery of this task is leased."""
        return task in self._leased

    def joins(self, lease: LeasedTask) -> bool:
        """Whether this delivery needs nothing more than another one that is leased, and ends with it.

        A train task is the same for each master that dispatched it. Another dispatch of any other task may differ: an
        export names the instances of the ps that have the audited model.
        """
        message = lease.message
        return any(
            message.task.purpose is Purpose.TRAIN or other.message.dispatch == message.dispatch
            for other in self._leased.get(message.task, ())
        )

    def is_leased(self, lease: LeasedTask) -> bool:
        """Whether this delivery is leased."""
        return lease in self._leased.get(lease.message.task, ())

    def learning_rate(self, task: TaskRef) -> float | None:
        """The rate that callbacks have set for a task; the same in all of its deliveries."""
        leases = self._leased.get(task)
        return leases[-1].message.learning_rate if leases else None

    def release(self, task: TaskRef) -> list[LeasedTask]:
        """Stop extending a task's deliveries. The caller acknowledges or returns them."""
        return self._leased.pop(task, [])

    def release_dispatch(self, message: TaskMessage) -> list[LeasedTask]:
        """Stop extending the deliveries of one dispatch of a task; others stay leased."""
        leases = self.release(message.task)
        if others := [lease for lease in leases if lease.message.dispatch != message.dispatch]:
            self._leased[message.task] = others
        return [lease for lease in leases if lease.message.dispatch == message.dispatch]

    def progress(self, now_s: float) -> None:
        """A batch was computed or absorbed, or an auxiliary task made progress."""
        self._progress_s = now_s
        self.progress_count += 1

    def to_extend(self, now_s: float) -> list[LeasedTask]:
        """The deliveries whose leases have to be extended now; none when the last progress is too old."""
        if self.is_stalled(now_s):
            return []
        return [lease for leases in self._leased.values() for lease in leases]

    def is_stalled(self, now_s: float) -> bool:
        """Whether there are tasks, and none of them made progress within the deadline."""
        return bool(self._leased) and now_s - self._progress_s >= self._deadline_s
