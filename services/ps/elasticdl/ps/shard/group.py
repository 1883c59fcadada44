"""One group: partitions of the model with one common history, in dense blocks, accumulator and ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.accumulator import Accumulator, AccumulatorState, Gradients
from elasticdl.ps.engine.dense import DenseCut, DenseStore
from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.row_gradients import RowGradients
from elasticdl.ps.engine.rows import RowStore
from elasticdl.ps.engine.schedules import schedule_of
from elasticdl.ps.engine.tracked_rows import TrackedRowStore
from elasticdl.ps.engine.updater import Updater
from elasticdl.ps.shard.metric_sums import NO_METRICS, EpochMetricSums, MetricTable, has_metrics
from elasticdl.ps.shard.staleness_gate import GateSettings, StalenessGate
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.ledger import Ledger, LedgerRecord, Verdict
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.model.manifests import RateRun
from elasticdl.shared.model.partitioning import dense_part, mask_of
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import ModelSignature, VariableKind
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import Push


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePolicy:
    """When and how fast pushes become optimizer updates.

    Attributes:
        grads_to_wait: batches whose gradients are averaged into one update.
        staleness_scaled_rate: divide the rate by the number of updates since the push's pull.
        rounds: synchronous training: which batches make one update; None: asynchronous.
        gate: asynchronous training: how the staleness of gradients is bounded; None: it is not.
        tasks_per_epoch: of the plan: metric states are added up by epoch.
        updater: applies an optimizer that Keras runs; None: there is none.
        follows_ring: the tables beside a ring: the update of a complete round waits until the ring has committed it.
    """

    grads_to_wait: int = 1
    staleness_scaled_rate: bool = False
    learning_rate_scale: float = 1.0
    rounds: Rounds | None = None
    gate: GateSettings | None = None
    tasks_per_epoch: int = 1
    updater: Updater | None = None
    follows_ring: bool = False

    @classmethod
    def of(cls, spec: JobSpec, updater: Updater | None = None) -> UpdatePolicy:
        """The policy of a job."""
        return cls(
            grads_to_wait=spec.grads_to_wait,
            staleness_scaled_rate=spec.staleness_scaled_rate,
            learning_rate_scale=spec.learning_rate_scale,
            rounds=spec.rounds,
            gate=_gate_of(spec),
            tasks_per_epoch=spec.plan.tasks_per_epoch,
            updater=updater,
            follows_ring=spec.has_tables_beside_ring,
        )

    def new_gate(self) -> StalenessGate | None:
        """A gate that bounds the staleness; None: nothing bounds it."""
        return StalenessGate(self.gate) if self.gate else None


def _gate_of(spec: JobSpec) -> GateSettings | None:
    if spec.max_staleness is not None:
        return GateSettings(max_staleness=spec.max_staleness, grads_to_wait=spec.grads_to_wait)
    return GateSettings.by_workers(spec.grads_to_wait) if spec.staleness_by_workers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCut:
    """A group without its rows, as it was at one moment between two pushes: independent copies.

    Attributes:
        rate: the last rate that a worker sent.
        rates: learning rates of the updates, if rows need them: ``RateHistory.runs``.
        move: the move for which it was held and not served; 0: it was served.
        tallies: int64[tracked tables, 2, 256]: ``TrackedRowStore.tallies``; 0 in other partitions.
    """

    partitions: Ranges
    dense: DenseCut
    accumulated: AccumulatorState
    ledger: LedgerRecord
    iteration: int
    rate: float
    rates: tuple[RateRun, ...] = ()
    rate_tolerance: float = 0.0
    move: int = 0
    tallies: NDArray[np.int64]
    metrics: MetricTable


class Group:
    """Partitions with one common history, and what they have learned. Not thread-safe: the core's lock guards it.

    Args:
        partitions: the partitions of the model whose dense elements and rows belong to the group.
        tables: the row stores of the ps, shared by all its groups.
        timeline: the updates that are made, by which rows expire and catch up; a group that makes one notes it.
    """

    def __init__(
        self,
        signature: ModelSignature,
        partitions: Ranges,
        policy: UpdatePolicy,
        tables: Sequence[RowStore],
        timeline: Timeline,
    ) -> None:
        self.signature = signature
        self.partitions = partitions
        self.policy = policy
        self.tables = tables
        self.part = dense_part(signature.dense, partitions)
        self.dense = DenseStore(
            signature.dense,
            signature.optimizer,
            self.part.blocks,
            updater=policy.updater,
            rate_scale=policy.learning_rate_scale,
        )
        trainable = [table for table in signature.tables if table.kind is VariableKind.TRAINABLE]
        self.accumulator = Accumulator(
            self.dense.trainable,
            self.dense.statistics,
            trainable,
            gathered=self.dense.gathered,
            power=signature.optimizer.power,
        )
        self.ledger = Ledger()
        self.metrics = EpochMetricSums(policy.tasks_per_epoch) if has_metrics(partitions) else None
        """Sums over the batches in the ledger; None: another group has them."""
        self.iteration = 0
        """Optimizer updates made."""
        self.move = 0
        """The move for which the group is held and not served yet; 0: it is served."""
        self._tracked = [store for store in tables if isinstance(store, TrackedRowStore)]
        self._needs_rates = any(store.missed is not None for store in tables)
        self._timeline = timeline
        self._mask = mask_of(partitions)
        self._schedule = schedule_of(signature.optimizer)
        self._rate = signature.optimizer.learning_rate
        """The last rate that a worker sent, for a flush that no push triggers."""

    def is_open(self, task: TaskId, batch: int) -> bool:
        """Whether a batch may be computed from the present weights; synchronous training keeps the order of rounds."""
        rounds = self.policy.rounds
        return rounds is None or rounds.is_open(self.ledger, task, batch)

    def judge(self, push: Push) -> Verdict:
        """The verdict on a push. One of a later round is a gap: an earlier round was lost and comes again."""
        task = TaskId(push.task)
        verdict = self.ledger.judge(task, push.batch, push.batches)
        if verdict is Verdict.APPLIED and not self.is_open(task, push.batch):
            return Verdict.GAP
        return verdict

    def check(self, push: Push) -> None:
        """Refuse a push that can't be applied; nothing changes.

        Raises:
            ProtocolError: it does not fit the model.
            NotFiniteError: it holds NaN or infinity, or would make layer state illegal.
        """
        if self.signature.optimizer.rate_from_worker and push.rate is None and not push.empty:
            raise ProtocolError("the worker has to give the learning rate, and the push carries none")
        if push.rate is not None and not np.isfinite(push.rate):
            raise ProtocolError(f"learning rate {push.rate} is not finite")
        tables = [table.table for table in push.tables]
        if len(tables) > 1 and len(set(tables)) != len(tables):
            raise ProtocolError("a table is named twice in one push")
        if push.statistics.size:
            self.dense.check_statistics(push.statistics)
        elif self.dense.statistics and not push.empty:
            raise ProtocolError("the push of a batch carries no layer state, and the model has some")
        if self.metrics is not None:
            self.metrics.check(push.task, push.metric_states)
        if push.empty:
            if push.dense.size or push.tables:
                raise ProtocolError("an empty push carries gradients")
            return
        self.dense.check(push.dense)
        for table in push.tables:
            self._table(table.table).check(table.ids, table.gradients)
        if push.magnitudes:
            self._check_magnitudes(push)

    def apply(self, push: Push, staleness: int = 0) -> None:
        """Absorb a checked push whose turn it is; an error in here leaves the group in an undefined state.

        Args:
            staleness: optimizer updates since the batch's pull.
        """
        self.follow_ring()
        if push.rate is not None:
            self._rate = push.rate
        if not push.empty:
            self._learn(Gradients(dense=push.dense, rows=self._rows_of(push)), push, staleness)
        task, rounds = TaskId(push.task), self.policy.rounds
        if push.statistics.size:
            self.dense.update_statistics(push.statistics, averaged=None if rounds is None else False)
        self.ledger.absorb(task, push.batch, push.batches, push.records, push.checksum)
        if self.metrics is not None:
            self.metrics.add(push.task, push.records, push.metric_states)
        if rounds is not None and not self.policy.follows_ring and rounds.is_complete(self.ledger, task, push.batch):
            self.flush()

    def follow_ring(self, batch: tuple[int, int] | None = None) -> None:
        """Beside a ring: make the update of a complete round, which the ring has committed.

        Args:
            batch: the one that weights are pulled for. Only one that is not absorbed shows that the ring has committed
                the round before: another worker may repeat it, because the ring has lost it. None: something else does.
        """
        rounds = self.policy.rounds
        if not (self.policy.follows_ring and self.accumulator.weight and rounds and rounds.is_between(self.ledger)):
            return
        if batch is not None:
            task = TaskId(batch[0])
            if self.ledger.next_batch(task, rounds.plan.batches_of(task)) > batch[1]:
                return
        self.flush()

    def apply_round(self, pushes: Sequence[Push], gradient: NDArray[np.float32] | NDArray[np.float64] | None) -> None:
        """Absorb all batches of a round that the ledger lacks, as ``apply`` would in this order, and make its update.

        Args:
            pushes: the batches without their gradients, in the order of the plan; otherwise as ``check`` accepts them.
            gradient: [trainable + gathered], float64: the sum of records x gradient over the batches; float32: the
                mean, weighted by records; None: all are empty. The weights of magnitudes have their power.
        """
        layer_states: list[tuple[int, NDArray[np.float32]]] = []
        weight = 0
        for push in pushes:
            if push.rate is not None:
                self._rate = push.rate
            if not push.empty:
                weight += push.records
                if push.statistics.size:
                    layer_states.append((push.records, push.statistics))
            if push.statistics.size:
                self.dense.update_statistics(push.statistics, averaged=False)
            self.ledger.absorb(TaskId(push.task), push.batch, push.batches, push.records, push.checksum)
            if self.metrics is not None:
                self.metrics.add(push.task, push.records, push.metric_states)
        mean = self.accumulator.mean_with(gradient, layer_states, weight)
        if mean is not None:
            self._update_by_mean(mean)

    def pull_dense(self, out: NDArray[np.float32], *, averages: bool = False, updates_ahead: int = 0) -> None:
        """``DenseStore.pull``, or with ``updates_ahead`` the values that are expected after this many more updates."""
        if updates_ahead:
            self.dense.predict(out, Update(self._base_rate(), self.iteration), updates_ahead)
        else:
            self.dense.pull(out, averages=averages)

    def flush(self) -> None:
        """Make an update of what is accumulated, if anything is."""
        if self.accumulator.weight:
            self._update_by_mean(self.accumulator.take())

    def cut(self) -> GroupCut:
        """The present state, without rows."""
        return GroupCut(
            partitions=self.partitions,
            dense=self.dense.cut(),
            accumulated=self.accumulator.state(),
            ledger=self.ledger.record(),
            iteration=self.iteration,
            rate=self._rate,
            rates=self._timeline.rates.runs if self._needs_rates else (),
            rate_tolerance=self._timeline.rates.tolerance if self._needs_rates else 0.0,
            move=self.move,
            tallies=self._tallies(),
            metrics=self.metrics.table() if self.metrics is not None else NO_METRICS,
        )

    def load(self, cut: GroupCut) -> None:
        """Take over a state of the same partitions."""
        self.dense.load(cut.dense)
        self.accumulator.load(cut.accumulated)
        self.ledger = Ledger(cut.ledger)
        self.iteration = cut.iteration
        self._rate = cut.rate
        self._timeline.rates.load(cut.rates, cut.iteration, cut.rate_tolerance)
        self.move = cut.move
        for store, tallies in zip(self._tracked, cut.tallies, strict=True):
            store.tallies[:, self._mask] = tallies[:, self._mask]
        if self.metrics is not None:
            self.metrics.load(cut.metrics)

    def may_merge(self, other: Group) -> bool:
        """Whether one ledger tells what both groups have absorbed, and both wait for the same gradients.

        Their numbers of updates may differ: one group absorbed a batch empty because it overflowed, and the other one
        got its gradients when it was computed again after a restart.
        """
        return (
            (self.move, self.ledger.step) == (other.move, other.ledger.step)
            and (self.policy.rounds is None or self.accumulator.weight == other.accumulator.weight)
            and self.ledger == other.ledger
        )

    def prepare_merge(self, other: Group) -> None:
        """Make updates of half-filled accumulators where these hold different batches."""
        if self.accumulator.weight != other.accumulator.weight:
            self.flush()
            other.flush()

    def _update_by_mean(self, mean: Gradients) -> None:
        if self.policy.rounds is not None:
            self.dense.update_statistics(mean.layer_state, averaged=True)
        self._update(mean, self._base_rate())

    def _learn(self, gradients: Gradients, push: Push, staleness: int) -> None:
        if self.policy.rounds is not None:
            self.accumulator.add(gradients, weight=push.records, layer_state=push.statistics)
            return
        if self.policy.grads_to_wait > 1:
            self.accumulator.add(gradients)
            if self.accumulator.weight < self.policy.grads_to_wait:
                return
            gradients = self.accumulator.take()
        self._update(gradients, self._base_rate(), max(1, staleness) if self.policy.staleness_scaled_rate else 1)

    def _update(self, gradients: Gradients, rate: float, divisor: int = 1) -> None:
        """Make an update with ``rate / divisor``. Rows without a gradient catch up with the undivided rate."""
        if self._needs_rates:
            self._timeline.rates.record(self.iteration, rate)
        update = Update(rate / divisor, self.iteration)
        self.dense.push(gradients.dense, update)
        for store in self.tables:
            if store.table.name in gradients.rows:
                store.push(gradients.rows[store.table.name], update)
        self.iteration += 1
        if self._needs_rates or self._tracked:
            self.note_updates()

    def note_updates(self) -> None:
        """Have the rows of the group expire, and catch up, by its number of updates."""
        self._timeline.updates[self._mask] = self.iteration

    def _tallies(self) -> NDArray[np.int64]:
        tallies = np.zeros((len(self._tracked), 2, self._mask.size), np.int64)
        for number, store in enumerate(self._tracked):
            tallies[number][:, self._mask] = store.tallies[:, self._mask]
        return tallies

    def _base_rate(self) -> float:
        rate = self._rate if self.signature.optimizer.rate_from_worker else self._schedule(self.iteration)
        return rate * self.policy.learning_rate_scale

    def _check_magnitudes(self, push: Push) -> None:
        rows = {table.table: RowGradients(table.ids, table.gradients) for table in push.tables}
        for table in push.magnitudes:
            self._table(table.table).check(table.ids, table.gradients)
            if table.table not in rows:
                raise ProtocolError("magnitudes came for a table without gradients")
            rows[table.table].places_of(table.ids)
        if len({table.table for table in push.magnitudes}) < len(push.magnitudes):
            raise ProtocolError("magnitudes of a table came twice")

    def _rows_of(self, push: Push) -> dict[str, RowGradients]:
        """The row gradients of a push by table name."""
        power = self.signature.optimizer.power
        rows, magnitudes = {}, {table.table: table for table in push.magnitudes if power}
        for table in push.tables:
            gradients = RowGradients(table.ids, table.gradients)
            if repeated := magnitudes.get(table.table):
                gradients = gradients.repeated(repeated.ids, repeated.gradients, power)
            rows[self.tables[table.table].table.name] = gradients
        return rows

    def _table(self, table: int) -> RowStore:
        if table >= len(self.tables):
            raise ProtocolError(f"table {table} of a model with {len(self.tables)}")
        return self.tables[table]
