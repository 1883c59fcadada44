"""The ps lane: pulls, pushes and progress of tasks. The order of its commands is the order on the wire."""

from __future__ import annotations

import time
from dataclasses import replace

from elasticdl.shared.names import Purpose
from elasticdl.worker.core import BatchRef
from elasticdl.worker.core.commands import AskProgress, PullBatch, PushBatch, ReadEpochMetrics, ReleaseBatch
from elasticdl.worker.core.events import BatchPulled, BatchPushed, PinLost, PullDelayed
from elasticdl.worker.execution.batch_store import BatchStore, LoadedBatch
from elasticdl.worker.ports import Floats, Ids, ParameterServers
from elasticdl.worker.ps_client import EpochMetrics, PinLostError, PullDelayedError, Pulled, TaskProgress


class PsLane:
    """Talks to the ps.

    Args:
        has_ring: weights for training are here; their pulls only wait for the rounds of all workers.
    """

    def __init__(self, ps: ParameterServers, store: BatchStore, *, has_ring: bool = False) -> None:
        self._ps = ps
        self._store = store
        self._has_ring = has_ring
        self._dense: Floats | None = None
        """Dense variables of a prediction job, which do not change."""

    def ask_progress(self, command: AskProgress) -> TaskProgress:
        """Ask the ledgers how far a task is."""
        return self._ps.next_batch(command.task, command.batches)

    def read_metrics(self, command: ReadEpochMetrics) -> EpochMetrics:
        """Read the training metrics of an epoch."""
        return self._ps.read_metrics(command.epoch, command.skipped)

    def pull(self, command: PullBatch) -> BatchPulled | PinLost | PullDelayed:
        """Pull the weights for a batch."""
        loaded = self._store[command.ref]
        started_s = time.perf_counter()
        purpose = command.ref.task.purpose
        batch = _key(command.ref) if purpose is Purpose.TRAIN else None
        try:
            if purpose is Purpose.PREDICT:
                loaded.weights = self._pull_constant(_ids(loaded))
            else:
                loaded.weights = self._ps.pull(_ids(loaded), pin=command.pin, batch=batch)
        except PinLostError:
            return PinLost(ref=command.ref)
        except PullDelayedError:
            return PullDelayed(ref=command.ref, seconds={"wait": time.perf_counter() - started_s})
        part = "wait" if self._has_ring and batch is not None else "pull"
        return BatchPulled(ref=command.ref, seconds={part: time.perf_counter() - started_s})

    def _pull_constant(self, ids: dict[str, Ids]) -> Pulled:
        """Weights that do not change: the dense variables are pulled once, then only the rows of each batch."""
        if self._dense is None:
            pulled = self._ps.pull({})
            self._dense = pulled.dense.copy()
            pulled.release()
        if ids:
            return replace(self._ps.pull(ids, dense=False), dense=self._dense)
        return Pulled(dense=self._dense, rows={}, iterations={}, step=0, release=lambda: None)

    def push(self, command: PushBatch) -> BatchPushed:
        """Push a batch, and pull for the next one in the same round trip if the core says so."""
        loaded = self._store[command.ref]
        following = self._store[command.pull] if command.pull is not None else None
        if loaded.push is None:
            raise ValueError(f"{command.ref} has no gradients")
        started_s, pull_s = time.perf_counter(), 0.0
        if following is None or command.pull is None:
            outcome = self._ps.push(loaded.push)
        else:
            outcome, following.weights, pull_s = self._ps.push_and_pull(
                loaded.push, _ids(following), _key(command.pull)
            )
        has_pulled = following is not None and following.weights is not None
        waits = following is not None and (self._has_ring or not has_pulled)
        push_s = time.perf_counter() - started_s - pull_s
        return BatchPushed(
            ref=command.ref,
            outcome=outcome,
            has_pulled=has_pulled,
            step=loaded.step,
            seconds={"push": push_s, "wait" if waits else "pull": pull_s},
        )

    def release(self, command: ReleaseBatch) -> None:
        """Drop the data of a batch."""
        self._store.release(command.ref)


def _key(ref: BatchRef) -> tuple[int, int]:
    return ref.task.number, ref.batch


def _ids(loaded: LoadedBatch) -> dict[str, Ids]:
    return {table: ids.unique for table, ids in loaded.tables.items()}
