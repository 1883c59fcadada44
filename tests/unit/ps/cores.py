"""A ps core that holds the example model, and pushes as they come off the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.unit.ps.example import PLAN, initial_dense, push_of, signature

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.model.partitioning import dense_parts
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.messages import NO_FLOATS, Push


def core_of(optimizer: str = "adam", *, policy: UpdatePolicy | None = None, ps: int = 1) -> PsCore:
    """The core of the first of so many ps."""
    core = PsCore(plan=PLAN, placement=Placement.even(ps), number=0, policy=policy or UpdatePolicy())
    core.initialise(initialise(optimizer, ps=ps))
    core.start_serving()
    return core


def initialise(optimizer: str = "adam", *, ps: int = 1) -> messages.Initialise:
    model = signature(optimizer)
    part = dense_parts(model.dense, Placement.even(ps))[0]
    return messages.Initialise(
        plan=PLAN.fingerprint, signature=model.to_json(), placement_version=1, dense=part.gather(initial_dense())
    )


def wire_push(task: int, batch: int, *, empty: bool = False) -> Push:
    request = push_of(task, batch, empty=empty)
    return Push(
        plan=PLAN.fingerprint,
        placement_version=1,
        task=task,
        batch=batch,
        batches=request.batches,
        records=request.records,
        checksum=request.checksum,
        empty=empty,
        dense=NO_FLOATS if request.dense_gradient is None else request.dense_gradient,
        statistics=request.statistics_update,
        tables=_tables(request.rows),
        magnitudes=_tables(request.magnitudes),
    )


def _tables(rows: Mapping[str, Any]) -> tuple[messages.TableGradients, ...]:
    return tuple(
        messages.TableGradients(table="ab".index(name), ids=ids, gradients=values)
        for name, (ids, values) in rows.items()
    )
