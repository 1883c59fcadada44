"""One group: tables, dense blocks, accumulator and ledger with one common history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elasticdl.ps.engine.accumulator import Accumulator, AccumulatorState, Gradients
from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.engine.dense import DenseCut, DenseStore
from elasticdl.ps.engine.optimizers import Update
from elasticdl.ps.engine.rows import RowStore
from elasticdl.ps.engine.schedules import schedule_of
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.ledger import Ledger, LedgerRecord
from elasticdl.shared.model import ModelSignature, VariableKind
from elasticdl.shared.names import TaskId
from elasticdl.shared.placement import DensePart
from elasticdl.shared.wire.messages import Floats, Push, TableIds, split_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePolicy:
    """When and how fast pushes become optimizer updates.

    Attributes:
        grads_to_wait: batches whose gradients are averaged into one update.
        staleness_scaled_rate: divide the rate by the number of updates since the push's pull.
    """

    grads_to_wait: int = 1
    staleness_scaled_rate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCut:
    """A group as it was at one moment between two pushes; close it when it is not needed any more.

    Attributes:
        rows: copy-on-write cut of each table, in the signature's order.
        dense: copy of the dense blocks.
        accumulated: copy of the half-filled accumulator.
        ledger: what had been absorbed.
        iteration: optimizer updates made.
        rate: the last rate that a worker sent.
    """

    rows: tuple[RowCut, ...]
    dense: DenseCut
    accumulated: AccumulatorState
    ledger: LedgerRecord
    iteration: int
    rate: float

    def pull(self, tables: Sequence[TableIds], rows: Floats, dense: Floats | None) -> None:
        """As ``Group.pull``, at the moment of the cut."""
        for table, out in zip(tables, split_rows(rows, tables), strict=True):
            if table.table >= len(self.rows):
                raise ProtocolError(f"table {table.table} of a model with {len(self.rows)}")
            self.rows[table.table].pull(table.ids, out)
        if dense is not None:
            self.dense.pull(dense)

    def close(self, *, finished: bool = False) -> None:
        """Free what was saved; ``finished``: the next dirty cut may start here."""
        for cut in self.rows:
            cut.close(finished=finished)


class Group:
    """Model state that one ps holds, and what it has learned. Not thread-safe: the core's lock guards it.

    Args:
        signature: the whole model.
        part: which of its dense elements are here; of every table the rows that are pushed here.
        policy: when pushes become updates.

    Raises:
        UserError: an optimizer, schedule or initializer that the engine does not know.
    """

    def __init__(self, signature: ModelSignature, part: DensePart, policy: UpdatePolicy) -> None:
        self.signature = signature
        self.policy = policy
        self.tables = tuple(RowStore(table, signature.optimizer, signature.seed) for table in signature.tables)
        self.dense = DenseStore(signature.dense, signature.optimizer, part.blocks)
        trainable = [table for table in signature.tables if table.kind is VariableKind.TRAINABLE]
        self.accumulator = Accumulator(self.dense.trainable, trainable)
        self.ledger = Ledger()
        self.iteration = 0
        """Optimizer updates made."""
        self._schedule = schedule_of(signature.optimizer)
        self._rate = signature.optimizer.learning_rate
        """The last rate that a worker sent, for a flush that no push triggers."""

    @property
    def rows(self) -> int:
        """Stored rows of all tables."""
        return sum(table.rows for table in self.tables)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self.dense.nbytes + sum(table.nbytes for table in self.tables)

    def pull(self, tables: Sequence[TableIds], rows: Floats, dense: Floats | None) -> None:
        """Write rows of ``tables`` one after another into ``rows``, and the dense values into ``dense``, if given.

        Raises:
            ProtocolError: an id outside of its table.
        """
        for table, out in zip(tables, split_rows(rows, tables), strict=True):
            self._table(table.table).pull(table.ids, out)
        if dense is not None:
            self.dense.pull(dense)

    def check(self, push: Push) -> None:
        """Refuse a push that can't be applied, and reserve the memory that it needs; no value changes.

        Raises:
            ProtocolError: it does not fit the model.
            NotFiniteError: it holds NaN or infinity.
            MemoryError: there is no room for its rows.
        """
        if self.signature.optimizer.rate_from_worker and push.rate is None:
            raise ProtocolError("the learning rate is the user's own schedule, and the push carries none")
        if push.rate is not None and not np.isfinite(push.rate):
            raise ProtocolError(f"learning rate {push.rate} is not finite")
        if len({table.table for table in push.tables}) != len(push.tables):
            raise ProtocolError("a table is named twice in one push")
        if push.statistics.size:
            self.dense.check(_zeros(self.dense.trainable), push.statistics)
        if push.empty:
            if push.dense.size or push.tables:
                raise ProtocolError("an empty push carries gradients")
            return
        self.dense.check(push.dense)
        for table in push.tables:
            self._table(table.table).check(table.ids, table.gradients)
        for table in push.tables:
            self.tables[table.table].reserve(table.ids.size)

    def apply(self, push: Push) -> None:
        """Absorb a checked push whose turn it is; an error in here leaves the group in an undefined state."""
        if push.rate is not None:
            self._rate = push.rate
        if not push.empty:
            gradients = Gradients(
                dense=push.dense,
                rows={self.tables[t.table].table.name: (t.ids, t.gradients) for t in push.tables},
            )
            self._learn(gradients, push.base_iteration)
        if push.statistics.size:
            self.dense.add_statistics(push.statistics)
        self.ledger.absorb(TaskId(push.task), push.batch, push.batches, push.records, push.checksum)

    def flush(self) -> None:
        """Make an update of what is accumulated, if anything is."""
        if self.accumulator.batches:
            self._update(self.accumulator.take(), self._base_rate())

    def cut(self, *, dirty_only: bool = False) -> GroupCut:
        """The present state; ``dirty_only`` leaves out rows that were in the last finished cut and did not change."""
        return GroupCut(
            rows=tuple(table.cut(dirty_only=dirty_only) for table in self.tables),
            dense=self.dense.cut(),
            accumulated=self.accumulator.state(),
            ledger=self.ledger.record(),
            iteration=self.iteration,
            rate=self._rate,
        )

    def restore(self, ledger: Ledger, *, iteration: int, rate: float) -> None:
        """Take over a snapshot's history; tables, dense blocks and accumulator are loaded already."""
        self.ledger = ledger
        self.iteration = iteration
        self._rate = rate

    def _learn(self, gradients: Gradients, base_iteration: int) -> None:
        if self.policy.grads_to_wait > 1:
            self.accumulator.add(gradients)
            if self.accumulator.batches < self.policy.grads_to_wait:
                return
            gradients = self.accumulator.take()
        rate = self._base_rate()
        if self.policy.staleness_scaled_rate:
            rate /= max(1, self.iteration - base_iteration)
        self._update(gradients, rate)

    def _update(self, gradients: Gradients, rate: float) -> None:
        update = Update(rate, self.iteration)
        self.dense.push(gradients.dense, _zeros(self.dense.statistics), update)
        for store in self.tables:
            if store.table.name in gradients.rows:
                store.push(*gradients.rows[store.table.name], update)
        self.iteration += 1

    def _base_rate(self) -> float:
        return self._rate if self.signature.optimizer.rate_from_worker else self._schedule(self.iteration)

    def _table(self, table: int) -> RowStore:
        if table >= len(self.tables):
            raise ProtocolError(f"table {table} of a model with {len(self.tables)}")
        return self.tables[table]


def _zeros(size: int) -> Floats:
    return np.zeros(size, np.float32)
