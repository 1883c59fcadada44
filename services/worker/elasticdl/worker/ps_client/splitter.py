"""Splits a request for the whole model into one message for each ps, and puts the answers together again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.partitioning import DensePart, RowSplit, dense_parts, one_owner, split_rows, take
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import PodName, Service, TaskId, pod_name
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.buffers import BufferPool, Bytes
from elasticdl.shared.wire.messages import NO_DOUBLES, NO_FLOATS, Floats, Ids, PullReply, TableIds
from elasticdl.worker.ps_client.requests import PushRequest


@dataclass(frozen=True, slots=True)
class Split:
    """One request in parts.

    Attributes:
        requests: one for each ps, in the order of ``Splitter.ps``.
        rows: of a pull, by table name: the ids sorted by their owner.
    """

    requests: Sequence[messages.Request]
    rows: Mapping[str, RowSplit]


class Splitter:
    """Knows which ps holds what by one version of the placement."""

    def __init__(self, signature: ModelSignature, plan: str, placement: Placement) -> None:
        self.version = placement.version
        self.ps: tuple[PodName, ...] = tuple(pod_name(Service.PS, number) for number in placement.holders)
        self.gate = self.ps.index(pod_name(Service.PS, placement.gate))
        """Position of the gate in ``ps``: the owner of partition 0, whose group adds up metric states."""
        self.parts: tuple[DensePart, ...] = dense_parts(signature.dense, placement)
        self._signature = signature
        self._plan = plan
        self._placement = placement
        self._tables = {table.name: (number, table.width) for number, table in enumerate(signature.tables)}

    def initialise(self, dense: Floats) -> Split:
        """Initial values, float32 flat over all variables, for each ps."""
        signature = self._signature.to_json()
        requests = [
            messages.Initialise(
                plan=self._plan, placement_version=self.version, signature=signature, dense=part.gather(dense)
            )
            for part in self.parts
        ]
        return Split(requests, {})

    def next_batch(self, task: TaskId, batches: int) -> Split:
        """The question how far a task is, for each ps."""
        request = messages.NextBatch(plan=self._plan, placement_version=self.version, task=task, batches=batches)
        return Split([request] * len(self.parts), {})

    def read_metrics(self, epoch: int, skipped: tuple[int, ...]) -> Split:
        """The question for the metrics of an epoch, for each ps."""
        request = messages.ReadMetrics(plan=self._plan, placement_version=self.version, epoch=epoch, skipped=skipped)
        return Split([request] * len(self.parts), {})

    def pull(
        self,
        ids: Mapping[str, Ids],
        *,
        pin: int = 0,
        dense: bool = True,
        batch: tuple[int, int] | None = None,
        averages: bool = False,
    ) -> Split:
        """A pull, for each ps."""
        rows = {name: self._split(own) for name, own in ids.items()}
        requests = [
            messages.Pull(
                plan=self._plan,
                placement_version=self.version,
                pin=pin,
                dense=dense,
                batch=batch,
                averages=averages,
                tables=self._tables_of(rows, ps),
            )
            for ps in range(len(self.parts))
        ]
        return Split(requests, rows)

    def _tables_of(self, rows: Mapping[str, RowSplit], ps: int) -> tuple[TableIds, ...]:
        tables = []
        for name, split in rows.items():
            number, width = self._tables[name]
            tables.append(TableIds(table=number, width=width, ids=split.owned(ps)))
        return tuple(tables)

    def push(self, request: PushRequest, having: Collection[PodName] = ()) -> Split:
        """A batch, for each ps. A ps without any of its rows gets a push without rows: every ledger counts every batch.

        A ps in ``having`` has the batch already and is only asked for its progress.
        """
        splits, magnitudes = (
            {self._tables[name][0]: (self._split(ids), rows) for name, (ids, rows) in tables.items()}
            for tables in (request.rows, request.magnitudes)
        )
        requests: list[messages.Request] = []
        for number, ps in enumerate(self.ps):
            if ps in having:
                requests += self.next_batch(request.task, request.batches).requests[:1]
            else:
                push = self._push_of(request, number)
                requests.append(replace(push, tables=_owned(splits, number), magnitudes=_owned(magnitudes, number)))
        return Split(requests, {})

    def _split(self, ids: Ids) -> RowSplit:
        return one_owner(ids) if len(self.ps) == 1 else split_rows(ids, self._placement)

    def _push_of(self, request: PushRequest, ps: int) -> messages.Push:
        """A push without its rows."""
        part = self.parts[ps]
        gradient = request.dense_gradient
        statistics = request.statistics_update
        bases = request.base_iterations
        return messages.Push(
            plan=self._plan,
            placement_version=self.version,
            task=request.task,
            batch=request.batch,
            batches=request.batches,
            records=request.records,
            checksum=request.checksum,
            # A ps that has got its partitions since the pull answers for groups that another ps pulled from.
            base_iteration=bases.get(self.ps[ps], min(bases.values(), default=0)),
            rate=request.rate,
            empty=gradient is None,
            dense=NO_FLOATS if gradient is None else take(gradient, part.pushed),
            statistics=take(statistics, part.statistics) if statistics.size else NO_FLOATS,
            tables=(),
            metric_states=request.metric_states if ps == self.gate else NO_DOUBLES,
        )


def _owned(splits: Mapping[int, tuple[RowSplit, Floats]], ps: int) -> tuple[messages.TableGradients, ...]:
    """What a ps gets of the rows of each table."""
    tables = []
    for table, (split, rows) in splits.items():
        own = split.owned(ps)
        if own.size:
            gradients = rows if split.order is None else rows[split.places(ps)]
            tables.append(messages.TableGradients(table=table, ids=own, gradients=gradients))
    return tuple(tables)


class Gathering:
    """One pull's result, in pooled buffers; with a single ps mostly views of what was received."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._buffers: list[Bytes] = []

    def dense(self, parts: Sequence[DensePart], replies: Sequence[PullReply]) -> Floats:
        """The flat vector over all variables in signature order. ``ProtocolError`` if a ps sent another number."""
        for part, reply in zip(parts, replies, strict=True):
            if reply.dense.size != part.size:
                raise ProtocolError(f"a ps sent {reply.dense.size} dense values instead of {part.size}")
        if len(parts) == 1 and len(parts[0].runs) <= 1:
            return replies[0].dense
        flat = self._floats(sum(part.size for part in parts))
        for part, reply in zip(parts, replies, strict=True):
            part.scatter(reply.dense, flat)
        return flat

    def rows(
        self,
        splits: Mapping[str, RowSplit],
        tables: Sequence[Sequence[TableIds]],
        replies: Sequence[PullReply],
    ) -> dict[str, Floats]:
        """Rows float32[n, width] of each table in the order of the pull's ids.

        Args:
            splits: by table name, in the order of the request.

        Raises:
            ProtocolError: a ps sent another number of rows than it was asked for.
        """
        by_ps = [messages.split_rows(reply.rows, asked) for asked, reply in zip(tables, replies, strict=True)]
        gathered = {}
        for position, (name, split) in enumerate(splits.items()):
            if split.order is None:
                gathered[name] = by_ps[0][position]
                continue
            width = tables[0][position].width
            rows = self._floats(split.ids.size * width).reshape(split.ids.size, width)
            for ps, parts in enumerate(by_ps):
                rows[split.places(ps)] = parts[position]
            gathered[name] = rows
        return gathered

    def releasing(self, received: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """A function that gives all buffers back, once; ``received``: releases what the answers lie in."""

        def release() -> None:
            for give_back in received:
                give_back()
            buffers, self._buffers = self._buffers, []
            for buffer in buffers:
                self._pool.give_back(buffer)

        return release

    def _floats(self, size: int) -> Floats:
        buffer = self._pool.take(4 * size)
        self._buffers.append(buffer)
        return buffer.view(np.float32)[:size]
