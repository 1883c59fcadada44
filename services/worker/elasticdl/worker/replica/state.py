"""The state of a replica: a ps' core with the whole model, which commits rounds."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from elasticdl.ps.engine.updater import Updater
from elasticdl.ps.shard.admission import RefusedError, check_same_model
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.replica_core import ReplicaCore
from elasticdl.ps.snapshots.reader import restore
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.errors import InvariantError, TransientError, UserError
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.model.partitioning import take
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.rows.snapshot_rows import read_chain
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import SERVED_REPLICA, Incarnation, TaskId
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.storage.memory_store import MemoryStore
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.buffers import Bytes
from elasticdl.shared.wire.messages import NO_FLOATS, RefusalKind
from elasticdl.worker.ports import Doubles, Floats
from elasticdl.worker.ps_client.requests import PullDelayedError, Pulled, PushRequest
from elasticdl.worker.ps_client.splitter import Splitter
from elasticdl.worker.ring.ports import BatchFacts

_COPY = Incarnation("copy")


class Replica:
    """See ``ring.ports.ReplicaState``. Thread-safe.

    Args:
        signature: of the model of this worker; every member has to have the same.
        updater: applies an optimizer that Keras runs; None: the model has one with a formula.
    """

    def __init__(
        self, spec: JobSpec, signature: ModelSignature, clock: Clock, *, updater: Updater | None = None
    ) -> None:
        if spec.rounds is None:
            raise InvariantError("a ring without rounds")
        policy = UpdatePolicy.of(spec, updater)
        self.core = ReplicaCore(plan=spec.plan, placement=Placement.even(1), number=0, policy=policy)
        self._rounds: Rounds = spec.rounds
        self._signature = signature
        self._clock = clock
        self._writer = SnapshotWriter(spec, SERVED_REPLICA, _COPY)
        self._splitter = Splitter(signature, spec.plan.fingerprint, self.core.placement)
        self._step: tuple[int, int] = (0, 0)
        """Batches in the ledger, and how many rounds they are."""

    @property
    def has_model(self) -> bool:
        """Whether there is a state at all."""
        return self.core.is_ready and self.core.has_model

    @property
    def step(self) -> int:
        """Rounds that this state contains, by its ledger."""
        with self.core.lock:
            return self._rounds_absorbed()

    @property
    def gradient_size(self) -> int:
        """Elements of the flat dense gradient, and of the magnitudes behind it."""
        return sum(one.stop - one.start for one in self._splitter.parts[0].pushed)

    @property
    def magnitudes(self) -> tuple[int, int]:
        """Where the magnitudes begin, and the power of the weights that they are added up with."""
        start = sum(one.stop - one.start for one in self._splitter.parts[0].gradients)
        return start, self._signature.optimizer.power

    def round_of(self, task: TaskId, batch: int) -> Sequence[tuple[TaskId, int]]:
        """The batches that make one update with this one, in the order of the plan."""
        return [(one, batch) for one in self._rounds.members(task, batch)]

    def next_batch(self, task: TaskId, batches: int) -> int:
        """The first batch of a task that the ledger lacks."""
        with self.core.lock:
            shard = self.core.shard
            return shard.next_batch(task, batches) if shard is not None and shard.groups else 0

    def has_all(self, tasks: int) -> bool:
        """Whether the ledger has all tasks of a plan; ``tasks``: how many it has, 0: as the job was submitted."""
        with self.core.lock:
            shard = self.core.shard
            return shard is not None and shard.groups[0].ledger.has_all(0, tasks or self.core.tasks)

    def is_open(self, task: TaskId, batch: int) -> bool:
        """Whether every round before that of a batch is committed."""
        with self.core.lock:
            shard = self.core.shard
            return shard is not None and all(group.is_open(task, batch) for group in shard.groups)

    def pull(self, batch: tuple[int, int]) -> Pulled:
        """The dense weights for a batch, once its round is open.

        Raises:
            PullDelayedError: it is not, or there is no model here yet.
        """
        request = self._requests().pull({}, batch=batch).requests[0]
        if not isinstance(request, messages.Pull):
            raise TypeError(f"a pull became {request}")
        try:
            reply = self.core.pull(request, now_s=self._clock.monotonic())
        except RefusedError as error:
            raise PullDelayedError(str(error)) from error
        part = self._splitter.parts[0]
        dense = reply.dense
        if len(part.runs) > 1:
            dense = np.empty(part.size, np.float32)
            part.scatter(reply.dense, dense)
        return Pulled(
            dense=dense, rows={}, iterations={SERVED_REPLICA: reply.iteration}, step=reply.step, release=lambda: None
        )

    def problem_of(self, request: PushRequest) -> str:
        """What in a batch is NaN or infinite; empty: nothing, so it may be contributed.

        Raises:
            ProtocolError: it does not fit plan or model.
            TransientError: there is no model here.
            UserError: its metrics do not fit those of the epoch.
        """
        try:
            return self.core.problem_of(self._push_of(request))
        except RefusedError as error:
            if error.refusal.kind is RefusalKind.USER:
                raise UserError(str(error)) from error
            raise TransientError(str(error)) from error

    def apply(self, batches: Sequence[BatchFacts], gradient: Floats | Doubles | None) -> None:
        """Commit a round. See ``ring.ports.ReplicaState``."""
        pushes = [self._push_of_facts(facts) for facts in batches]
        rounds = self.step
        own = None if gradient is None else take(cast("Doubles", gradient), self._splitter.parts[0].pushed)
        self.core.apply_round(pushes, own, self._clock.monotonic())
        with self.core.lock:
            self._step = (self.core.step, rounds + 1)

    @property
    def is_complete(self) -> bool:
        """Whether every task of the plan, as the job was submitted, is in the ledger."""
        return self.has_all(0)

    def checksums(self) -> tuple[int, ...]:
        """A checksum of each dense variable, in the order of the signature."""
        part = self._splitter.parts[0]
        weights = np.empty(part.size, np.float32)
        with self.core.lock:
            shard = self.core.shard
            if shard is None:
                raise InvariantError("a replica without a model is compared")
            shard.groups[0].pull_dense(weights)
        flat = np.empty(part.size, np.float32)
        part.scatter(weights, flat)
        ends = np.cumsum([variable.size for variable in self._signature.dense]).tolist()
        return tuple([zlib.crc32(flat[start:end].data) for start, end in zip([0, *ends], ends, strict=False)])

    def save(self) -> Callable[[], Sequence[Bytes]]:
        """A copy of the whole state: the objects of a snapshot, after their names."""
        cut = self.core.cut(dirty_only=False, flush=False)

        def parts() -> Sequence[Bytes]:
            names: list[str] = []
            found: list[Bytes] = []
            try:
                for uri, data in self._writer.objects(self.core, cut, number=0, base=""):
                    names.append(uri)
                    found.append(np.frombuffer(bytes(data), np.uint8))
            finally:
                cut.close()
            return [np.frombuffer(json.dumps(names).encode(), np.uint8), *found]

        return parts

    def load(self, parts: Sequence[Bytes]) -> None:
        """Take over what ``save`` gave. Raises ``UserError``: it is of another model."""
        names: list[str] = json.loads(parts[0].tobytes())
        store = MemoryStore()
        for name, part in zip(names, parts[1:], strict=True):
            store.write(name, part.tobytes())
        shard = restore(store, self.core, read_chain(store, names[-1]))
        try:
            check_same_model(shard.signature, self._signature)
        except RefusedError as error:
            raise UserError(str(error)) from error
        self.core.replace(shard)

    def _requests(self) -> Splitter:
        placement = self.core.placement
        if placement.version != self._splitter.version:  # A resume without the log publishes a later version.
            self._splitter = Splitter(self._signature, self.core.plan.fingerprint, placement)
        return self._splitter

    def _push_of(self, request: PushRequest) -> messages.Push:
        push = self._requests().push(request).requests[0]
        if not isinstance(push, messages.Push):
            raise TypeError(f"a push became {push}")
        return push

    def _push_of_facts(self, facts: BatchFacts) -> messages.Push:
        request = PushRequest(
            task=facts.task,
            batch=facts.batch,
            batches=facts.batches,
            records=facts.records,
            checksum=facts.checksum,
            rate=facts.rate,
            dense_gradient=None if facts.is_empty else NO_FLOATS,
            statistics_update=facts.statistics,
            metric_states=facts.metric_states,
        )
        return self._push_of(request)

    def _rounds_absorbed(self) -> int:
        """The caller has the lock."""
        shard = self.core.shard
        if shard is None or not shard.groups:
            return 0
        ledger = shard.groups[0].ledger
        if self._step[0] != ledger.step:
            self._step = (ledger.step, self._rounds.count(ledger))
        return self._step[1]
