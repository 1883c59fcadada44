"""Messages as frames: the meta as protobuf, arrays as tensors.

A request is checked here for being well-formed (lengths agree with each other); whether it fits the model is the ps
core's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.frames import Tensor
from elasticdl.shared.wire.messages import (
    NO_FLOATS,
    NO_IDS,
    Exchange,
    ExchangeReply,
    Ids,
    Initialise,
    InitialiseReply,
    MetricsReply,
    NextBatch,
    NextBatchReply,
    Pull,
    PullReply,
    Push,
    PushReply,
    PushVerdict,
    ReadMetrics,
    Refusal,
    RefusalKind,
    Reply,
    Request,
    TableGradients,
    TableIds,
)

_M = TypeVar("_M", wire_pb2.Request, wire_pb2.Reply)
_FLOATS, _DOUBLES, _IDS = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)
_PUSHED: list[np.dtype[Any]] = [_FLOATS, _FLOATS, _IDS, _FLOATS, _DOUBLES]
"""Types of the arrays of a push."""
_VERDICTS = {verdict.value: verdict for verdict in PushVerdict}
_VERDICT_CODES = {verdict: verdict.value for verdict in PushVerdict}


def encode_request(request: Request) -> tuple[bytes, list[Tensor]]:
    """Meta and tensors of a request."""
    message = wire_pb2.Request()
    tensors: list[Tensor] = []
    match request:
        case Initialise():
            message.initialise.plan = request.plan
            message.initialise.signature = request.signature
            message.initialise.placement_version = request.placement_version
            tensors = [request.dense]
        case NextBatch():
            message.next_batch.plan = request.plan
            message.next_batch.task, message.next_batch.batches = request.task, request.batches
            message.next_batch.placement_version = request.placement_version
        case Pull():
            tensors = [_encode_pull(request, message.pull)]
        case Push():
            tensors = _encode_push(request, message.push)
        case Exchange():
            tensors = [_encode_exchange(request, message.exchange)]
        case ReadMetrics():
            message.read_metrics.plan, message.read_metrics.epoch = request.plan, request.epoch
            message.read_metrics.placement_version = request.placement_version
    return message.SerializeToString(), tensors


def decode_request(meta: bytes, tensors: Sequence[Tensor]) -> Request:
    """Inverse of ``encode_request``; arrays are views of ``tensors``. Raises ``ProtocolError``."""
    message = _parse(wire_pb2.Request, meta)
    match message.WhichOneof("kind"):
        case "initialise":
            (dense,) = _expect(tensors, [_FLOATS])
            facts = message.initialise
            return Initialise(
                plan=facts.plan, placement_version=facts.placement_version, signature=facts.signature, dense=dense
            )
        case "next_batch":
            _expect(tensors, [])
            wanted = message.next_batch
            return NextBatch(
                plan=wanted.plan, placement_version=wanted.placement_version, task=wanted.task, batches=wanted.batches
            )
        case "pull":
            return _decode_pull(message.pull, tensors)
        case "push":
            return _decode_push(message.push, tensors)
        case "exchange":
            return _decode_exchange(message.exchange, tensors)
        case "read_metrics":
            _expect(tensors, [])
            read = message.read_metrics
            return ReadMetrics(plan=read.plan, placement_version=read.placement_version, epoch=read.epoch)
        case _:
            raise ProtocolError("a request of no known kind")


def encode_reply(reply: Reply, incarnation: str) -> tuple[bytes, list[Tensor]]:
    """Meta and tensors of a reply."""
    message = wire_pb2.Reply(incarnation=incarnation)
    tensors: list[Tensor] = []
    match reply:
        case Refusal():
            message.refusal.kind, message.refusal.message = reply.kind.value, reply.message
        case InitialiseReply():
            message.initialise.first = reply.first
        case NextBatchReply():
            message.next_batch.next_batch = reply.next_batch
        case PullReply():
            message.pull.iteration, message.pull.step = reply.iteration, reply.step
            message.pull.updates_ahead = reply.updates_ahead
            tensors = [reply.dense, reply.rows]
        case PushReply():
            push = message.push
            push.verdict, push.next_batch = _VERDICT_CODES[reply.verdict], reply.next_batch
            push.step, push.message = reply.step, reply.message
            if reply.staleness is not None:
                push.staleness = reply.staleness
        case ExchangeReply():
            message.exchange.generation = reply.generation
            message.exchange.missing.extend(reply.missing)
            tensors = [reply.values]
        case MetricsReply():
            message.metrics.complete = reply.complete
            message.metrics.batches, message.metrics.records = reply.batches, reply.records
            tensors = [reply.states]
    return message.SerializeToString(), tensors


def decode_reply(meta: bytes, tensors: Sequence[Tensor]) -> tuple[Reply, str]:
    """Inverse of ``encode_reply``: the reply and the answering incarnation. Raises ``ProtocolError``."""
    message = _parse(wire_pb2.Reply, meta)
    reply: Reply
    try:
        match message.WhichOneof("kind"):
            case "refusal":
                reply = Refusal(kind=RefusalKind(message.refusal.kind), message=message.refusal.message)
            case "initialise":
                reply = InitialiseReply(first=message.initialise.first)
            case "next_batch":
                reply = NextBatchReply(next_batch=message.next_batch.next_batch)
            case "pull":
                dense, rows = _expect(tensors, [_FLOATS, _FLOATS])
                reply = PullReply(
                    iteration=message.pull.iteration,
                    step=message.pull.step,
                    dense=dense,
                    rows=rows,
                    updates_ahead=message.pull.updates_ahead,
                )
            case "push":
                push = message.push
                reply = PushReply(
                    verdict=_VERDICTS.get(push.verdict) or PushVerdict(push.verdict),
                    next_batch=push.next_batch,
                    step=push.step,
                    message=push.message,
                    staleness=push.staleness if push.HasField("staleness") else None,
                )
            case "exchange":
                (values,) = _expect(tensors, [_DOUBLES])
                exchange = message.exchange
                reply = ExchangeReply(generation=exchange.generation, missing=tuple(exchange.missing), values=values)
            case "metrics":
                (values,) = _expect(tensors, [_DOUBLES])
                read = message.metrics
                reply = MetricsReply(complete=read.complete, batches=read.batches, records=read.records, states=values)
            case _:
                raise ProtocolError("a reply of no known kind")
    except ValueError as error:
        raise ProtocolError(f"a reply with an unknown word: {error}") from error
    return reply, message.incarnation


def _encode_pull(request: Pull, message: wire_pb2.Pull) -> Ids:
    message.plan, message.placement_version = request.plan, request.placement_version
    message.pin, message.dense, message.averages = request.pin, request.dense, request.averages
    message.updates_ahead = request.updates_ahead
    if request.batch is not None:
        message.task, message.batch = request.batch
    for table in request.tables:
        message.tables.add(table=table.table, rows=table.ids.size, width=table.width)
    return _joined([table.ids for table in request.tables], NO_IDS)


def _decode_pull(message: wire_pb2.Pull, tensors: Sequence[Tensor]) -> Pull:
    (ids,) = _expect(tensors, [_IDS])
    slices = list(message.tables)
    parts = _split(ids, [slice_.rows for slice_ in slices])
    return Pull(
        plan=message.plan,
        placement_version=message.placement_version,
        pin=message.pin,
        dense=message.dense,
        tables=tuple(
            [
                TableIds(table=slice_.table, width=slice_.width, ids=part)
                for slice_, part in zip(slices, parts, strict=True)
            ]
        ),
        batch=(message.task, message.batch) if message.HasField("task") else None,
        averages=message.averages,
        updates_ahead=message.updates_ahead,
    )


def _encode_push(request: Push, message: wire_pb2.Push) -> list[Tensor]:
    message.plan, message.placement_version = request.plan, request.placement_version
    message.task, message.batch, message.batches = request.task, request.batch, request.batches
    message.records, message.checksum = request.records, request.checksum
    message.base_iteration, message.empty = request.base_iteration, request.empty
    if request.rate is not None:
        message.rate = request.rate
    for table in request.tables:
        message.tables.add(table=table.table, rows=table.ids.size, width=table.gradients.shape[1])
    return [
        request.dense,
        request.statistics,
        _joined([table.ids for table in request.tables], NO_IDS),
        _joined([table.gradients.reshape(-1) for table in request.tables], NO_FLOATS),
        request.metric_states,
    ]


def _decode_push(message: wire_pb2.Push, tensors: Sequence[Tensor]) -> Push:
    dense, statistics, ids, floats, states = _expect(tensors, _PUSHED)
    slices = list(message.tables)
    id_parts = _split(ids, [slice_.rows for slice_ in slices])
    float_parts = _split(floats, [slice_.rows * slice_.width for slice_ in slices])
    return Push(
        plan=message.plan,
        placement_version=message.placement_version,
        task=message.task,
        batch=message.batch,
        batches=message.batches,
        records=message.records,
        checksum=message.checksum,
        base_iteration=message.base_iteration,
        rate=message.rate if message.HasField("rate") else None,
        empty=message.empty,
        dense=dense,
        statistics=statistics,
        tables=tuple(
            [
                TableGradients(table=slice_.table, ids=own, gradients=gradients.reshape(slice_.rows, slice_.width))
                for slice_, own, gradients in zip(slices, id_parts, float_parts, strict=True)
            ]
        ),
        metric_states=states,
    )


def _encode_exchange(request: Exchange, message: wire_pb2.Exchange) -> Tensor:
    message.plan, message.placement_version = request.plan, request.placement_version
    message.task, message.batch, message.weights = request.task, request.batch, request.weights
    message.position, message.backward, message.absent = request.position, request.backward, request.absent
    return request.values


def _decode_exchange(message: wire_pb2.Exchange, tensors: Sequence[Tensor]) -> Exchange:
    (values,) = _expect(tensors, [_DOUBLES])
    return Exchange(
        plan=message.plan,
        placement_version=message.placement_version,
        task=message.task,
        batch=message.batch,
        weights=message.weights,
        position=message.position,
        backward=message.backward,
        absent=message.absent,
        values=values,
    )


def _joined(parts: Sequence[Tensor], nothing: Tensor) -> Tensor:
    match len(parts):
        case 0:
            return nothing
        case 1:
            return parts[0]
        case _:
            return np.concatenate(parts)


def _split(flat: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    if sum(lengths) != flat.size:
        raise ProtocolError(f"a tensor of {flat.size} elements for slices of {sum(lengths)}")
    parts, start = [], 0
    for length in lengths:
        parts.append(flat[start : start + length])
        start += length
    return parts


def _expect(tensors: Sequence[Tensor], dtypes: list[np.dtype[Any]]) -> Sequence[Tensor]:
    if [tensor.dtype for tensor in tensors] != dtypes:
        raise ProtocolError(f"tensors of {[str(tensor.dtype) for tensor in tensors]} were not expected here")
    return tensors


def _parse(kind: type[_M], meta: bytes) -> _M:
    try:
        return kind.FromString(meta)
    except DecodeError as error:
        raise ProtocolError(f"a frame's meta is no {kind.__name__}") from error
