"""One request for the whole model as one message for each ps. Pure; the simulation uses it too."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.shared.model import ModelSignature
from elasticdl.shared.placement import DensePart, Placement, RowSplit, dense_parts, split_rows
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import NO_FLOATS, Floats, Ids
from elasticdl.worker.ps_set.requests import PushRequest


class Splitter:
    """Knows which ps holds what.

    Args:
        signature: the model.
        plan: the plan's fingerprint.
        ps: how many ps there are.
    """

    def __init__(self, signature: ModelSignature, plan: str, ps: int) -> None:
        self.parts: tuple[DensePart, ...] = dense_parts(signature.dense, ps)
        self._signature = signature
        self._plan = plan
        self._placement = Placement.even(ps)
        self._numbers = {table.name: number for number, table in enumerate(signature.tables)}

    def initialise(self, dense: Floats) -> list[messages.Initialise]:
        """Initial values, float32 flat over all variables, for each ps."""
        signature = self._signature.to_json()
        return [
            messages.Initialise(
                plan=self._plan, signature=signature, parts=len(self.parts), part=number, dense=part.gather(dense)
            )
            for number, part in enumerate(self.parts)
        ]

    def rows(self, ids: Mapping[str, Ids]) -> dict[str, RowSplit]:
        """Ids of each table sorted by their owner."""
        return {name: split_rows(own, self._placement) for name, own in ids.items()}

    def pull(self, splits: Mapping[str, RowSplit], *, pin: int, dense: bool) -> list[messages.Pull]:
        """A pull, for each ps."""
        return [
            messages.Pull(
                plan=self._plan,
                table_version=self._placement.version,
                pin=pin,
                dense=dense,
                tables=tuple(
                    messages.TableIds(
                        table=self._numbers[name],
                        width=self._signature.tables[self._numbers[name]].width,
                        ids=split.ids[split.part(ps)],
                    )
                    for name, split in splits.items()
                ),
            )
            for ps in range(len(self.parts))
        ]

    def push(self, request: PushRequest) -> list[messages.Push]:
        """A batch, for each ps: one that has nothing to learn from it gets an empty list of rows, never no message."""
        splits = {name: (split_rows(ids, self._placement), rows) for name, (ids, rows) in request.rows.items()}
        return [self._push_of(request, splits, number) for number in range(len(self.parts))]

    def _push_of(self, request: PushRequest, splits: Mapping[str, tuple[RowSplit, Floats]], ps: int) -> messages.Push:
        part = self.parts[ps]
        gradient = request.dense_gradient
        tables = []
        for name, (split, rows) in splits.items():
            own = split.part(ps)
            if own.start < own.stop:
                gradients = rows if split.order is None else rows[split.order[own]]
                tables.append(
                    messages.TableGradients(table=self._numbers[name], ids=split.ids[own], gradients=gradients)
                )
        delta = request.statistics_delta
        return messages.Push(
            plan=self._plan,
            table_version=self._placement.version,
            task=request.task,
            batch=request.batch,
            batches=request.batches,
            records=request.records,
            checksum=request.checksum,
            base_iteration=request.base_iteration,
            rate=request.rate,
            empty=gradient is None,
            dense=NO_FLOATS if gradient is None else gradient[part.gradients],
            statistics=delta[part.statistics] if delta.size else NO_FLOATS,
            tables=tuple(tables),
        )
