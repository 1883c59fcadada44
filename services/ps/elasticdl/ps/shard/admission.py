"""Whether a request belongs to this job at all: pure checks against the plan and the model."""

from __future__ import annotations

from elasticdl.shared.errors import ElasticDLError, InvariantError, PermanentError, ProtocolError
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.messages.commands import Command, HoldGroup, OpenPin, TakeSnapshot
from elasticdl.shared.model.aligned import ALIGNED_FLOATS, ALIGNMENT_BYTES
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.frames import FrameLimits
from elasticdl.shared.wire.messages import Pull, Push, Refusal, RefusalKind

_REPLY_BYTES_MAX = FrameLimits().payload_bytes_max - 2 * ALIGNMENT_BYTES


class RefusedError(ElasticDLError):
    """A request that is answered with a refusal; nothing was changed."""

    def __init__(self, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.refusal = Refusal(kind=kind, message=message)


def check_plan(fingerprint: str, plan: Plan) -> None:
    """Refuse a peer that works by another plan."""
    if fingerprint != plan.fingerprint:
        raise RefusedError(
            RefusalKind.USER,
            f"the request is for plan {fingerprint}, this job's plan is {plan.fingerprint}: "
            "data, batch size, epochs, shuffle or seed differ",
        )


def check_version(version: int, known: int) -> None:
    """Refuse a request that was split by another version of the placement than this ps goes by.

    Raises:
        RefusedError: MOVED, or NOT_READY if the ps has not received the later version yet.
    """
    if version < known:
        raise RefusedError(RefusalKind.MOVED, f"the placement is at version {known}, not {version}")
    if version > known:
        raise RefusedError(RefusalKind.NOT_READY, f"version {version} of the placement is not known here yet")


def check_known(command: Command, known: int) -> None:
    """Refuse a command for a later version of the placement than this ps has received.

    What is held here may be served by that version, and what is served may have to be dropped.

    Raises:
        PermanentError: the command is for a later version; the master repeats it.
    """
    match command:
        case TakeSnapshot(version=version) | HoldGroup(version=version) | OpenPin(version=version) if version > known:
            raise PermanentError(f"version {version} of the placement is not known here yet")
        case _:
            pass


def check_task(task: int, batches: int, plan: Plan) -> None:
    """Refuse a task that the plan does not have, or has with another number of batches. The master may add epochs."""
    planned = _planned_batches(task, plan)
    if batches != planned:
        raise ProtocolError(f"task {task} has {planned} batches by the plan, not {batches}")


def check_batch_number(task: int, batch: int, plan: Plan) -> None:
    """Refuse a batch that is not in the plan."""
    planned = _planned_batches(task, plan)
    if batch >= planned:
        raise ProtocolError(f"task {task} has {planned} batches, there is no batch {batch}")


def _planned_batches(task: int, plan: Plan) -> int:
    if not plan.defines(task):
        raise ProtocolError(f"task {task} is not in the plan of {plan.tasks} tasks")
    return plan.batches_of(TaskId(task))


def check_batch(push: Push, plan: Plan) -> None:
    """Refuse a push whose batch, or number of records, is not as planned."""
    check_task(push.task, push.batches, plan)
    check_batch_number(push.task, push.batch, plan)
    planned = plan.records_of(TaskId(push.task), push.batch)
    if push.records != planned:
        raise ProtocolError(
            f"task {push.task}, batch {push.batch} has {planned} records by the plan, not {push.records}"
        )


def check_tables(request: Pull, signature: ModelSignature) -> None:
    """Refuse a pull of rows that the model does not have."""
    for table in request.tables:
        if table.table >= len(signature.tables) or table.width != signature.tables[table.table].width:
            raise ProtocolError(f"the model has no table {table.table} of width {table.width}")


def pull_size(request: Pull, dense_size: int) -> tuple[int, int, int]:
    """Places of the values of a pull in one array of floats: dense ones, then rows, which begin aligned.

    Returns:
        Dense elements that are wanted, where the rows begin, and the length of the array.

    Raises:
        ProtocolError: it wants more than a frame holds.
    """
    dense = dense_size if request.dense else 0
    rows = sum([table.ids.size * table.width for table in request.tables])
    if 4 * (dense + rows) > _REPLY_BYTES_MAX:
        raise ProtocolError(f"a pull of {dense + rows} floats is beyond {_REPLY_BYTES_MAX} bytes")
    rows_start = -(-dense // ALIGNED_FLOATS) * ALIGNED_FLOATS
    return dense, rows_start, rows_start + rows


def check_memory(nbytes: int, allowed: int) -> None:
    """Refuse to learn more than fits into memory; ``allowed``: bytes, 0: any number."""
    if allowed and nbytes > allowed:
        raise RefusedError(
            RefusalKind.USER, f"the model needs {nbytes} bytes on this ps, {allowed} are allowed: use more ps"
        )


def parse_signature(text: str) -> ModelSignature:
    """A model's signature from its JSON."""
    try:
        return ModelSignature.from_json(text)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ProtocolError(f"not a model signature: {error}") from error


def check_same_model(held: ModelSignature, offered: ModelSignature) -> None:
    """Refuse another model than the one that is being trained."""
    if held.digest() == offered.digest():
        return
    for ours, theirs in zip(held.dense, offered.dense, strict=False):
        if ours.name == theirs.name and ours.state != theirs.state:
            raise RefusedError(
                RefusalKind.USER,
                f"layer state {ours.name} is updated by the rule {str(theirs.state)!r} here and by {str(ours.state)!r} "
                "in the rest of the job: start a new job",
            )
    for name in ("dense", "tables", "optimizer", "seed"):
        if getattr(held, name) != getattr(offered, name):
            raise RefusedError(
                RefusalKind.USER,
                f"another model is being trained in this job: {name} differ (signature {held.digest()}, "
                f"offered {offered.digest()})",
            )
    raise InvariantError("signatures with different digests are equal")
