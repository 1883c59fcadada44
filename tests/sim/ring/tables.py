"""The ps beside a simulated ring: a real core with one row, whose weight is the number of updates that it has made."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.job.plan import Plan, Shuffle, Source
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import ModelSignature, Optimizer, RowInitializer, RowTable
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import NO_FLOATS, PushVerdict
from elasticdl.worker.ring.core.messages import BatchKey

_ID = np.zeros(1, np.int64)
_MODEL = ModelSignature(
    dense=(),
    tables=(RowTable(name="table", width=1, initializer=RowInitializer(distribution="zeros")),),
    optimizer=Optimizer(name="sgd", learning_rate=1.0),
    seed=1,
)


class Tables:
    """One ps. It can be restored from its last snapshot; what it has done since is lost then."""

    def __init__(self, *, rounds: int, width: int) -> None:
        source = Source(uri="memory://data", size_bytes=1, etag="1", records=rounds * width)
        self._plan = Plan(
            sources=(source,), minibatch_size=1, minibatches_per_task=rounds, epochs=1, shuffle=Shuffle.NONE, seed=1
        )
        self._rounds = Rounds(plan=self._plan, tasks_per_cohort=width)
        self._core = self._new_core()
        self._done: list[tuple[bool, BatchKey]] = []
        """What was pushed (True) or pulled for, in this order."""
        self._saved = 0
        self.pulled: defaultdict[int, set[str]] = defaultdict(set)
        """By round, who has pulled for a batch of it that the ps lacked."""
        self.starts = 0
        """How often the replicas began from the start."""
        self.newer_rows = 0
        """Batches that were computed again with rows of a round that only lost members had committed."""
        self.acknowledged: set[BatchKey] = set()
        """Batches that were absorbed by this or a former process."""

    @property
    def updates(self) -> int:
        """How many updates the row has."""
        assert self._core.shard is not None
        return self._core.shard.iteration

    @property
    def batches(self) -> int:
        """How many batches are in the ledger."""
        return self._core.step

    def has(self, key: BatchKey) -> bool:
        """Whether the ledger has a batch."""
        assert self._core.shard is not None
        return self._core.shard.next_batch(key[0], self._plan.batches_of(key[0])) > key[1]

    def is_open(self, key: BatchKey) -> bool:
        """Whether a pull for a batch is not delayed."""
        assert self._core.shard is not None
        return all(group.is_open(key[0], key[1]) for group in self._core.shard.groups)

    def pull(self, key: BatchKey) -> int:
        """The row for a batch; returns how many updates it has."""
        self._done.append((False, key))
        return self._pull(self._core, key)

    def push(self, key: BatchKey) -> bool:
        """Push the row's gradient; returns whether the ps has the batch now."""
        verdict = self._push(self._core, key)
        if verdict is PushVerdict.APPLIED:
            self._done.append((True, key))
        if verdict is not PushVerdict.GAP:
            self.acknowledged.add(key)
        return verdict is not PushVerdict.GAP

    def save(self) -> None:
        """Take a snapshot."""
        self._saved = len(self._done)

    def restore(self) -> None:
        """The process dies, and the next one has the last snapshot."""
        self._core = self._new_core()
        del self._done[self._saved :]
        for is_push, key in self._done:
            (self._push if is_push else self._pull)(self._core, key)

    def finish(self) -> None:
        """The final snapshot."""
        self._core.cut(dirty_only=False, flush=True).close(finished=True)

    def _new_core(self) -> PsCore:
        policy = UpdatePolicy(rounds=self._rounds, follows_ring=True, tasks_per_epoch=self._plan.tasks_per_epoch)
        core = PsCore(plan=self._plan, placement=Placement.even(1), number=0, policy=policy)
        core.initialise(
            messages.Initialise(
                plan=self._plan.fingerprint, placement_version=1, signature=_MODEL.to_json(), dense=NO_FLOATS
            )
        )
        core.start_serving()
        return core

    def _pull(self, core: PsCore, key: BatchKey) -> int:
        request = messages.Pull(
            plan=self._plan.fingerprint,
            placement_version=1,
            pin=0,
            dense=False,
            batch=key,
            tables=(messages.TableIds(table=0, width=1, ids=_ID),),
        )
        try:
            return round(float(core.pull(request).rows[0]))
        except RefusedError as error:
            raise AssertionError("a pull that was open is delayed") from error

    def _push(self, core: PsCore, key: BatchKey) -> PushVerdict:
        gradient = np.full((1, 1), -1, np.float32)
        push = messages.Push(
            plan=self._plan.fingerprint,
            placement_version=1,
            task=key[0],
            batch=key[1],
            batches=self._plan.batches_of(TaskId(key[0])),
            records=1,
            checksum=hash(key) & 0xFFFF,
            dense=NO_FLOATS,
            statistics=NO_FLOATS,
            tables=(messages.TableGradients(table=0, ids=_ID, gradients=gradient),),
        )
        return core.push(push).verdict
