"""A ps' shard of the model: row stores, and the groups whose rows are in them. Not thread-safe: the core guards it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from elasticdl.ps.engine.cuts import EVERYTHING, CutRoom
from elasticdl.ps.engine.rows import RowStore
from elasticdl.ps.engine.tracked_rows import TableFigures, TrackedRowStore, row_store
from elasticdl.ps.shard.group import Group, GroupCut, UpdatePolicy
from elasticdl.ps.shard.regrouping import common, joined, lay_out, reduced, union
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.ledger import Verdict
from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.manifests import GroupState
from elasticdl.shared.model.partitioning import dense_part, mask_of, partitions_of, take, within
from elasticdl.shared.model.placement import PARTITIONS, Ranges, group_id
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import NO_FLOATS, Floats, Pull, Push, TableGradients, TableIds, split_rows

GroupVersion = tuple[Ranges, int, int, int]
"""Partitions of a group, the move that it is held for or 0, its step, and its updates, which a flush adds to."""

_NO_GROUP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """One group's part of a push, and what its ledger says about it."""

    group: Group
    push: Push
    verdict: Verdict


def most_backward(divisions: Sequence[Division]) -> Verdict:
    """The verdict on a push that no group applies."""
    gap = any(division.verdict is Verdict.GAP for division in divisions)
    return Verdict.GAP if gap else Verdict.DUPLICATE


class ModelShard:
    """What one ps holds of a model."""

    def __init__(self, signature: ModelSignature, policy: UpdatePolicy) -> None:
        self.signature = signature
        self.policy = policy
        self.timeline = Timeline()
        self.tables = [
            row_store(table, signature.optimizer, signature.seed, self.timeline) for table in signature.tables
        ]
        self.stores: list[RowStore] = [*self.tables, *candidates_of(self.tables)]
        """The tables, and the candidates of those that have some: all that is saved, moved and dropped."""
        self.groups: list[Group] = []
        self.held: list[Group] = []
        """Groups that are loaded but not served until the placement gives them to this ps."""
        self.dropped_rows = 0
        """How often rows were dropped: what is saved next must not build on what was saved before."""
        self._awaited: tuple[int, Ranges] = (0, ())
        """A move, and the partitions whose rows are being loaded for it."""
        self._here = mask_of(())
        """bool by partition: whether a group here owns its rows."""
        self._undropped = [0] * len(self.stores)
        """By store: the row index below which there may be rows without an owner."""
        self._arrange()

    @property
    def partitions(self) -> Ranges:
        """What is served."""
        return union([group.partitions for group in self.groups])

    def covers(self, partitions: Ranges) -> bool:
        """Whether all of these are here, held ones included."""
        here = union([group.partitions for group in self.groups + self.held])
        return common(here, partitions) == partitions

    @property
    def rows(self) -> int:
        """Stored rows of all tables."""
        return sum(table.rows for table in self.tables)

    def table_figures(self) -> dict[str, TableFigures]:
        """What each table holds whose rows are admitted by count or expire. It looks at every row of these tables."""
        served = mask_of(self.partitions)
        return {store.table.name: store.figures(served) for store in self.tables if isinstance(store, TrackedRowStore)}

    @property
    def nbytes(self) -> int:
        """Bytes allocated for weights and slots."""
        return sum(one.dense.nbytes for one in self.groups + self.held) + sum(store.nbytes for store in self.stores)

    @property
    def iteration(self) -> int:
        """Optimizer updates, the least over the groups."""
        return min([group.iteration for group in self.groups], default=0)

    @property
    def accumulated(self) -> int:
        """Batches that wait for their update, the most of the groups."""
        return max([int(group.accumulator.weight) for group in self.groups], default=0)

    @property
    def step(self) -> int:
        """Batches absorbed, the most of the groups."""
        return max([group.ledger.step for group in self.groups], default=0)

    @property
    def least_step(self) -> int:
        """Batches absorbed, the least of the groups."""
        return min((group.ledger.step for group in self.groups), default=0)

    @property
    def versions(self) -> tuple[GroupVersion, ...]:
        """The versions of the groups; equal to those of a snapshot as long as nothing has changed since."""
        return tuple((one.partitions, one.move, one.ledger.step, one.iteration) for one in self.groups + self.held)

    @property
    def ledgers(self) -> tuple[GroupLedger, ...]:
        """The ledger of each group, held ones included: the placement says which of them count."""
        return tuple(ledger_of(group) for group in self.groups + self.held)

    def next_batch(self, task: TaskId, batches: int) -> int:
        """The first batch of a task that some group lacks."""
        return min([group.ledger.next_batch(task, batches) for group in self.groups])

    def is_open_for(self, request: Pull) -> bool:
        """Whether the round of the batch that weights are pulled for is open in all groups."""
        if request.batch is None or self.policy.rounds is None:
            return True
        task, batch = request.batch
        return all(group.is_open(TaskId(task), batch) for group in self.groups)

    def follow_ring(self, batch: tuple[int, int] | None = None) -> None:
        """See ``Group.follow_ring``."""
        for group in self.groups:
            group.follow_ring(batch)

    def pull(
        self,
        tables: Sequence[TableIds],
        rows: Floats,
        dense: Floats | None,
        *,
        averages: bool = False,
        updates_ahead: int = 0,
    ) -> None:
        """Write rows of ``tables`` one after another into ``rows``, and the dense values into ``dense``, if given.

        Args:
            dense: float32 of the size of the part; None: not wanted.
        """
        for table, out in zip(tables, split_rows(rows, tables), strict=True):
            if table.table >= len(self.tables):
                raise ProtocolError(f"table {table.table} of a model with {len(self.tables)}")
            self.tables[table.table].pull(table.ids, out)
        if dense is None:
            return
        if len(self.groups) == 1:
            self.groups[0].pull_dense(dense, averages=averages, updates_ahead=updates_ahead)
            return
        for group in self.groups:
            values = np.empty(group.part.size, np.float32)
            group.pull_dense(values, averages=averages, updates_ahead=updates_ahead)
            lay_out(self.part.places(group.part), values, dense)

    def whole_dense(self, *, averages: bool = False) -> Floats:
        """The dense values of a shard that has all partitions, float32, in the signature's order."""
        values, flat = np.empty(self.part.size, np.float32), np.empty(self.part.size, np.float32)
        self.pull([], NO_FLOATS, values, averages=averages)
        self.part.scatter(values, flat)
        return flat

    def divide(self, push: Push) -> list[Division]:
        """A push for each group: one that has nothing to learn from it gets an empty list of rows, never no push."""
        if len(self.groups) == 1:
            return [_judged(self.groups[0], push)]
        statistics = sum(group.dense.statistics for group in self.groups)
        pushed = sum(group.dense.trainable + group.dense.gathered for group in self.groups)
        if push.dense.size not in (0, pushed) or push.statistics.size not in (0, statistics):
            raise ProtocolError(f"a push of {push.dense.size} and {push.statistics.size} dense elements")
        tables, magnitudes = (
            [(table, self._owners[partitions_of(table.ids)]) for table in each]
            for each in (push.tables, push.magnitudes)
        )
        if any((own == _NO_GROUP).any() for _, own in tables + magnitudes):
            raise ProtocolError("a push with rows of partitions that are not here")
        return [
            _judged(
                group,
                replace(
                    self._dense_of(push, group),
                    tables=_owned(tables, number),
                    magnitudes=_owned(magnitudes, number),
                ),
            )
            for number, group in enumerate(self.groups)
        ]

    def reserve(self, push: Push) -> None:
        """Reserve the memory that a checked push needs."""
        for table in push.tables:
            self.tables[table.table].reserve(table.ids.size)

    def staleness(self, push: Push) -> int:
        """Optimizer updates since a batch's pull, by the least advanced group, before the batch is applied."""
        return max(0, self.iteration - push.base_iteration)

    def room_for_cut(self) -> Sequence[CutRoom]:
        """Memory for a ``cut`` that comes soon; needs no lock, so no push waits for it."""
        return [store.room_for_cut() for store in self.stores]

    def cut(
        self,
        *,
        dirty_only: bool = False,
        since: Sequence[int] = (),
        room: Sequence[CutRoom] | None = None,
    ) -> ShardCut:
        """The present state; ``dirty_only`` leaves out rows that were in the last finished cut and did not change.

        ``since``: otherwise those that have not changed since a cut with these ``generations``.
        """
        rooms: Sequence[CutRoom | None] = room or [None] * len(self.stores)
        before = since or [EVERYTHING] * len(self.stores)
        return ShardCut(
            rows=tuple(
                store.cut(dirty_only=dirty_only, since=after, room=each)
                for store, after, each in zip(self.stores, before, rooms, strict=True)
            ),
            groups=tuple(group.cut() for group in self.groups + self.held),
            part=self.part,
            parts=tuple(group.part for group in self.groups),
            dropped_rows=self.dropped_rows,
        )

    def has_rest(self, tasks: int) -> bool:
        """Whether accumulators are half-filled and nothing will fill them, because all ``tasks`` are finished."""
        return any(group.accumulator.weight for group in self.groups) and all(
            next(group.ledger.missing(tasks), None) is None for group in self.groups
        )

    def flush(self) -> None:
        """Make updates of what is accumulated, if anything is."""
        for group in self.groups:
            group.flush()

    # --- which groups there are ------------------------------------------------------------------------------------

    def create(self, partitions: Ranges) -> Group:
        """A group that has learned nothing yet, not installed."""
        return Group(self.signature, partitions, self.policy, self.tables, self.timeline)

    def install(self, groups: Sequence[Group]) -> None:
        """Replace all groups by these; ``drop_some`` drops the rows without an owner."""
        self.groups = [group for group in groups if not group.move]
        self.held = [group for group in groups if group.move]
        self._note_rows()
        self._arrange()

    def group_of(self, cut: GroupCut) -> Group:
        """A group in the state of a cut, not installed."""
        group = self.create(cut.partitions)
        group.load(cut)
        return group

    @property
    def has_undropped(self) -> bool:
        """Whether there may be rows without an owner."""
        return any(self._undropped)

    def drop_some(self) -> bool:
        """Drop some rows without an owner, or return some memory to the system.

        Returns:
            False: no rows have to be dropped, or a cut is open and they have to wait.
        """
        for number, store in enumerate(self.stores):
            before = self._undropped[number]
            if before:
                self._undropped[number] = store.drop(before, self._here)
                return self._undropped[number] != before
            if store.shrink():
                return True
        return False

    def await_rows(self, move: int, partitions: Ranges) -> bool:
        """Keep rows of these partitions for a move, and nothing that came for another one.

        Returns:
            False: there are rows without an owner, and a cut is open, so they can't be dropped now.
        """
        if self._awaited != (move, partitions):
            self._awaited = (0, ())
            self.install(self.groups)
            while self.drop_some():
                pass
            if self.has_undropped:
                return False
            self._awaited = (move, partitions)
            self._here |= mask_of(partitions)
        return True

    def hold(self, move: int, cuts: Sequence[GroupCut]) -> None:
        """Hold groups for a move; the rows are loaded already."""
        self.held = [self.group_of(replace(cut, move=move)) for cut in cuts]

    def adopt(self, owned: Ranges, version: int) -> None:
        """Serve what a version of the placement says, drop everything else that it has decided about."""
        groups = []
        if self._awaited[0] <= version:
            self._awaited = (0, ())
        for group in self.groups + self.held:
            kept = common(group.partitions, owned)
            if kept == group.partitions:
                group.move = 0
                groups.append(group)
            elif kept:
                groups.append(self.group_of(replace(reduced(group.cut(), kept, self.signature.dense), move=0)))
            elif group.move > version:
                groups.append(group)
        self.install(groups)
        self.merge()

    def merge(self) -> None:
        """Make one group of those that have absorbed the same batches."""
        if len(self.groups) < 2:
            return
        merged: list[Group] = []
        for group in self.groups:
            twin = next((n for n, other in enumerate(merged) if other.may_merge(group)), None)
            if twin is None:
                merged.append(group)
            else:
                merged[twin].prepare_merge(group)
                cuts = [merged[twin].cut(), group.cut()]
                merged[twin] = self.group_of(joined(cuts, self.signature.dense))
        if len(merged) < len(self.groups):
            self.groups = merged
            self._arrange()

    def _arrange(self) -> None:
        self.part = dense_part(self.signature.dense, self.partitions)
        self._owners: npt.NDArray[np.int16] = np.full(PARTITIONS, _NO_GROUP, np.int16)
        self.timeline.updates.fill(0)
        for number, group in enumerate(self.groups):
            self._owners[mask_of(group.partitions)] = number
            group.note_updates()

    def _note_rows(self) -> None:
        here = mask_of(union([group.partitions for group in self.groups + self.held] + [self._awaited[1]]))
        if (self._here & ~here).any() and any(store.rows for store in self.stores):
            self._undropped = [store.rows for store in self.stores]
            self.dropped_rows += 1
        self._here = here

    def _dense_of(self, push: Push, group: Group) -> Push:
        """A push with only the dense elements of a group."""
        trainable = sum(one.dense.trainable for one in self.groups)
        fixed = trainable + sum(one.dense.statistics for one in self.groups)
        places = self.part.places(group.part)
        moving = tuple(place for place in places if place.stop <= trainable) + tuple(
            slice(trainable + place.start, trainable + place.stop)
            for place in within(self.part.magnitudes, group.part.magnitudes)
        )
        added = tuple(
            slice(place.start - trainable, place.stop - trainable)
            for place in places
            if trainable <= place.start and place.stop <= fixed
        )
        return replace(
            push,
            dense=take(push.dense, moving) if push.dense.size else NO_FLOATS,
            statistics=take(push.statistics, added) if push.statistics.size else NO_FLOATS,
        )


def candidates_of(tables: Sequence[RowStore]) -> list[RowStore]:
    """The stores of candidates, in the order of their tables."""
    return [table.candidates for table in tables if isinstance(table, TrackedRowStore) and table.candidates is not None]


def ledger_of(group: Group) -> GroupLedger:
    """A group's ledger, as events carry it."""
    return GroupLedger(group=group_id(group.partitions), partitions=group.partitions, ledger=group.ledger.record())


def versions_of(groups: Sequence[GroupState]) -> tuple[GroupVersion, ...]:
    """The versions of the groups of a snapshot."""
    return tuple((group.partitions, group.move, group.ledger.step, group.iteration) for group in groups)


def _judged(group: Group, push: Push) -> Division:
    return Division(group=group, push=push, verdict=group.judge(push))


def _owned(tables: Sequence[tuple[TableGradients, npt.NDArray[np.int16]]], group: int) -> tuple[TableGradients, ...]:
    """What a group has of tables whose ids have these owners."""
    chosen = [(table, owners == group) for table, owners in tables]
    return tuple(
        replace(table, ids=table.ids[own], gradients=table.gradients[own]) for table, own in chosen if own.any()
    )
