"""What the threads of a worker are doing in the code of the model file, for the watchdog and for after a crash."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.process.running_batches import RunningBatchesFile
from elasticdl.worker.core.batch_clock import Activity, Work


class RunningBatches:
    """The activities of this process. Any thread may run one."""

    def __init__(self, file: RunningBatchesFile) -> None:
        self._file = file
        self._running: dict[Activity, AbstractContextManager[None]] = {}
        self._done: set[Work] = set()
        self._own = threading.local()

    def running(self, task: TaskRef, batch: int, work: Work) -> _Running:
        """Record an activity of this thread within a ``with`` block, which gives it."""
        return _Running(self, task, batch, work)

    @contextmanager
    def starting(self, limit_s: float) -> Iterator[None]:
        """Within the block, this thread loads the model file and builds the model; with no batch, or with a first one.

        Args:
            limit_s: seconds that each part of it may take at most.
        """
        activity = Activity(batch=None, work=Work.START, thread=threading.get_ident(), limit_s=limit_s)
        before = self._begin(activity)
        try:
            yield
        finally:
            self._end(activity, before, is_done=True)

    def count_batch(self) -> None:
        """See ``RunningBatchesFile.count_batch``."""
        self._file.count_batch()

    @property
    def activities(self) -> Sequence[Activity]:
        """All that run now."""
        return tuple(self._running)

    def waiting(self) -> AbstractContextManager[None]:
        """Within the block, this thread's activity waits for something that is not the user's code."""
        return waiting(self._current())

    def step(self) -> None:
        """This thread's activity has made progress."""
        activity = self._current()
        if activity is not None:
            activity.steps += 1

    def accuse(self, guilty: Sequence[Activity]) -> None:
        """Leave only these in the file: the process is about to end because of them."""
        for activity, recorded in tuple(self._running.items()):
            if activity not in guilty:
                recorded.__exit__(None, None, None)

    def _current(self) -> Activity | None:
        return getattr(self._own, "activity", None)

    def _begin(self, activity: Activity) -> Activity | None:
        activity.is_first = activity.work.is_compiled and activity.work not in self._done
        batch = activity.batch
        recorded = self._running[activity] = self._file.running(batch.task, batch.batch) if batch else nullcontext()
        recorded.__enter__()
        before, self._own.activity = self._current(), activity
        if before is not None and before.work is Work.START:
            before.waits, activity.limit_s = True, before.limit_s
        return before

    def _end(self, activity: Activity, before: Activity | None, *, is_done: bool) -> None:
        self._own.activity = before
        if before is not None and before.work is Work.START:
            before.waits = False
            before.steps += 1
        self._running.pop(activity).__exit__(None, None, None)
        if is_done:
            self._done.add(activity.work)


class _Running:
    """One activity, from the beginning to the end of a block; a class, because this happens for every batch."""

    __slots__ = ("_activity", "_all", "_before")

    def __init__(self, all_: RunningBatches, task: TaskRef, batch: int, work: Work) -> None:
        self._all = all_
        running = RunningBatch(task=task, batch=batch)
        self._activity = Activity(batch=running, work=work, thread=threading.get_ident())
        self._before: Activity | None = None

    def __enter__(self) -> Activity:
        self._before = self._all._begin(self._activity)
        return self._activity

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all._end(self._activity, self._before, is_done=kind is None)


@contextmanager
def waiting(activity: Activity | None) -> Iterator[None]:
    """Within the block, an activity waits for something that is not the user's code; any thread may call.

    Args:
        activity: None: nothing is recorded.
    """
    if activity is None:
        yield
        return
    before, activity.waits = activity.waits, True
    try:
        yield
    finally:
        activity.waits = before
        activity.steps += 1
