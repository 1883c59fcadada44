"""Which pulls have to wait for the pushes of other workers: by rounds, or because staleness is bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable

from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.staleness_gate import StalenessGate
from elasticdl.shared.wire.messages import Pull, Push, RefusalKind


class PullAdmission:
    """Admits pulls. The core's lock guards it, and callers hold it where nothing else is said."""

    def __init__(self, policy: UpdatePolicy, lock: threading.Lock) -> None:
        self.gate: StalenessGate | None = None
        """What bounds the staleness; None: nothing, or another ps."""
        self._policy = policy
        self._lock = lock
        self._pushed = threading.Condition(lock)
        self._waiting = 0
        """Threads that wait for a push."""
        self._is_only = True

    def set_role(self, *, is_gate: bool, is_only: bool) -> None:
        """Start or stop bounding the staleness; ``is_only``: the model is on this ps alone."""
        self._is_only = is_only
        if is_gate != (self.gate is not None):
            self.gate = self._policy.new_gate() if is_gate else None

    def wait(self, is_refused: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for pushes while a pull would be refused, at most for ``timeout_s``; whether it would not be."""
        if self._policy.rounds is None and self.gate is None:
            return True  # Nothing delays pulls, so they need not take the lock for this.
        with self._lock:
            self._waiting += 1
            try:
                return self._pushed.wait_for(lambda: not is_refused(), timeout_s)
            finally:
                self._waiting -= 1

    def refusal(self, request: Pull, shard: ModelShard, now_s: float, sender: int) -> str:
        """Why the weights for a batch can't be pulled yet; empty: they can."""
        if not shard.is_open_for(request):
            return "the update before this batch has not been made yet"
        if request.batch is None or self.gate is None:
            return ""
        is_admitted = self.gate.admits(request.batch, accumulated=self._accumulated(shard), now_s=now_s, sender=sender)
        return "" if is_admitted else "a gradient could become staler than the bound"

    def check(self, request: Pull, shard: ModelShard, now_s: float, sender: int) -> None:
        """Refuse a pull that has to wait."""
        reason = self.refusal(request, shard, now_s, sender)
        if reason:
            raise RefusedError(RefusalKind.PULL_DELAYED, reason)

    def updates_ahead(self, request: Pull, shard: ModelShard) -> int:
        """Updates that other workers' batches are expected to make between this admitted pull and its push.

        The gate knows the outstanding batches; another ps gets the number from the worker, which asks the gate first.
        """
        if request.batch is None or self.gate is None:
            return request.updates_ahead
        return self.gate.updates_ahead(request.batch, accumulated=self._accumulated(shard))

    def on_task_begun(self, task: int) -> None:
        """A worker asks where a task stands: it begins or continues it."""
        if self.gate:
            self.gate.on_task_begun(task)

    def on_pulled(self, request: Pull, shard: ModelShard, now_s: float, sender: int) -> None:
        """An admitted pull was answered."""
        if self.gate and request.batch is not None:
            accumulated = self._accumulated(shard)
            self.gate.on_pulled(request.batch, accumulated=accumulated, now_s=now_s, sender=sender)

    def on_disconnected(self, sender: int) -> None:
        """A connection has ended: its worker is probably dead. Takes the core's lock."""
        with self._lock:
            if self.gate:
                self.gate.on_disconnected(sender)
                self._pushed.notify_all()

    def on_pushed(self, push: Push, next_batch: int, now_s: float) -> None:
        """A batch was pushed; ``next_batch``: of its task, as the answer says."""
        if self.gate:
            self.gate.on_pushed((push.task, push.batch), is_empty=push.empty, now_s=now_s)
            if next_batch == push.batches:
                self.gate.on_task_finished(push.task)
        if self._waiting:
            self._pushed.notify_all()

    def _accumulated(self, shard: ModelShard) -> int:
        """Batches that wait for their update, on the ps where most do.

        A ps that was restored absorbs lost batches again, so other batches wait there than on this ps.
        """
        return shard.accumulated if self._is_only else self._policy.grads_to_wait - 1
