"""What a ps' shard was at one moment between two pushes, for a snapshot or an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.shard.group import GroupCut
from elasticdl.ps.shard.regrouping import lay_out
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.partitioning import DensePart
from elasticdl.shared.wire.messages import Floats, TableIds, split_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCut:
    """A shard at one moment between two pushes; close it when it is not needed any more.

    Attributes:
        rows: copy-on-write cut of each of ``ModelShard.stores``: the tables in the signature's order, then candidates.
        dropped_rows: how often rows had been dropped before.
    """

    rows: tuple[RowCut, ...]
    groups: tuple[GroupCut, ...]
    part: DensePart
    parts: tuple[DensePart, ...]
    dropped_rows: int

    @property
    def generations(self) -> tuple[int, ...]:
        """What another cut may begin after, by table."""
        return tuple(cut.generation for cut in self.rows)

    @property
    def served(self) -> tuple[GroupCut, ...]:
        """The groups that are not held."""
        return tuple(group for group in self.groups if not group.move)

    @property
    def iteration(self) -> int:
        """Optimizer updates, the least over its groups."""
        return min((group.iteration for group in self.served), default=0)

    @property
    def step(self) -> int:
        """Batches absorbed, the most of its groups."""
        return max((group.ledger.step for group in self.served), default=0)

    def pull(self, tables: Sequence[TableIds], rows: Floats, dense: Floats | None, *, averages: bool = False) -> None:
        """As ``ModelShard.pull``, at the moment of the cut."""
        for table, out in zip(tables, split_rows(rows, tables), strict=True):
            if table.table >= len(self.rows):
                raise ProtocolError(f"table {table.table} of a model with {len(self.rows)}")
            self.rows[table.table].pull(table.ids, out)
        if dense is None:
            return
        for group, part in zip(self.served, self.parts, strict=True):
            values = np.empty(part.size, np.float32)
            group.dense.pull(values, averages=averages)
            lay_out(self.part.places(part), values, dense)

    def close(self, *, finished: bool = False) -> None:
        """Free what was saved; ``finished``: the next dirty cut may start here."""
        for cut in self.rows:
            cut.close(finished=finished)


class Pin:
    """The cut that an evaluation reads; one evaluation at a time. Not thread-safe."""

    def __init__(self) -> None:
        self._evaluation = 0
        self._cut: ShardCut | None = None

    def open(self, evaluation: int, cut: Callable[[], ShardCut]) -> int | None:
        """Keep a cut for an evaluation, in place of an earlier one's; returns its step.

        A successor of the master repeats orders. So an evaluation that had a cut here, or came before one that had,
        never gets another: its workers could read two states. The answer is None unless its cut is still open.
        """
        if evaluation > self._evaluation:
            self.close()
            self._cut = cut()
            self._evaluation = evaluation
        kept = self.of(evaluation)
        return None if kept is None else kept.step

    def of(self, evaluation: int) -> ShardCut | None:
        """The cut of an evaluation, if it is open."""
        return self._cut if self._evaluation == evaluation else None

    def close(self) -> None:
        """Free what was kept."""
        if self._cut is not None:
            self._cut.close()
            self._cut = None
