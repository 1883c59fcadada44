"""Messages of the ring as frames. States are sent in pieces: see ``state_frames``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.names import TaskId
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.buffers import Bytes
from elasticdl.shared.wire.frames import Tensor
from elasticdl.worker.ring.core.messages import (
    Differs,
    Entry,
    Go,
    Hello,
    Kind,
    Message,
    Near,
    Offer,
    Opened,
    Result,
    State,
    Want,
    Weights,
)
from elasticdl.worker.ring.core.positions import Position
from elasticdl.worker.ring.ports import BatchFacts

PIECE_BYTES = 64 << 20
"""Bytes of a state in one frame."""
_WANTED = {Kind.RESULT: wire_pb2.RingMessage.WANT_RESULT, Kind.STATE: wire_pb2.RingMessage.WANT_STATE}
_KINDS = {code: kind for kind, code in _WANTED.items()}


def encode(message: Message) -> tuple[bytes, list[Tensor]]:
    """Meta and tensors of a message, which share the message's arrays."""
    encoded = wire_pb2.RingMessage()
    tensors: list[Tensor] = []
    match message:
        case Hello():
            encoded.kind = wire_pb2.RingMessage.HELLO
            encoded.position.CopyFrom(_encode_position(message.position))
        case Opened():
            encoded.kind = wire_pb2.RingMessage.OPENED
            encoded.position.CopyFrom(_encode_position(message.position))
        case Weights():
            encoded.kind, encoded.step = wire_pb2.RingMessage.WEIGHTS, message.step
            encoded.checksums.extend(message.checksums)
        case Differs():
            encoded.kind, encoded.step = wire_pb2.RingMessage.DIFFERS, message.step
            encoded.tensor = message.tensor
        case Near():
            encoded.kind = wire_pb2.RingMessage.NEAR
        case Want():
            encoded.kind = _WANTED[message.kind]
        case Offer():
            encoded.kind, encoded.step = wire_pb2.RingMessage.OFFER, message.step
            encoded.round.extend([wire_pb2.RingKey(task=task, batch=batch) for task, batch in message.round])
            tensors = _add_batches(encoded, [(0, message.facts)])
        case Go():
            encoded.kind, encoded.step = wire_pb2.RingMessage.GO, message.step
            encoded.needed.extend(message.needed)
            tensors = _add_batches(encoded, [(entry.rank, entry.facts) for entry in message.entries])
        case Result():
            encoded.kind = wire_pb2.RingMessage.RESULT
            encoded.position.CopyFrom(_encode_position(message.before))
            tensors = _add_batches(encoded, [(0, facts) for facts in message.batches])
            if message.gradient is not None:
                tensors.append(message.gradient)
        case State():
            raise ValueError("a state is sent in pieces")
    return encoded.SerializeToString(), tensors


def state_frames(state: State) -> Iterator[tuple[bytes, list[Tensor]]]:
    """Meta and tensors of the frames that make a state: each with the sizes of all parts and one piece of a part."""
    sizes = [part.nbytes for part in state.parts]
    encoded = wire_pb2.RingMessage(kind=wire_pb2.RingMessage.STATE, part_bytes=sizes)
    encoded.position.CopyFrom(_encode_position(state.position))
    meta = encoded.SerializeToString()
    yield meta, []
    for part in state.parts:
        flat = part.reshape(-1)
        for start in range(0, flat.size, PIECE_BYTES):
            yield meta, [flat[start : start + PIECE_BYTES]]


class Decoder:
    """Messages from the frames of one connection."""

    def __init__(self) -> None:
        self._parts: list[Bytes] | None = None
        self._received = 0
        """Bytes of the state that is on its way."""

    def decode(self, meta: bytes, tensors: Sequence[Tensor]) -> Message | None:
        """The message that a frame completes; None: it is a piece of a state. Arrays are copied.

        Raises:
            ProtocolError: this is no message.
        """
        try:
            encoded = wire_pb2.RingMessage.FromString(meta)
            return self._decode(encoded, tensors)
        except (DecodeError, IndexError, ValueError) as error:
            raise ProtocolError(f"not a message of a ring: {error}") from error

    def _decode(self, encoded: wire_pb2.RingMessage, tensors: Sequence[Tensor]) -> Message | None:
        kind = encoded.kind
        if kind == wire_pb2.RingMessage.STATE:
            return self._add_piece(encoded, tensors)
        if kind == wire_pb2.RingMessage.HELLO:
            return Hello(position=_decode_position(encoded.position))
        if kind == wire_pb2.RingMessage.OPENED:
            return Opened(position=_decode_position(encoded.position))
        if kind == wire_pb2.RingMessage.NEAR:
            return Near()
        if kind == wire_pb2.RingMessage.WEIGHTS:
            return Weights(step=encoded.step, checksums=tuple(encoded.checksums))
        if kind == wire_pb2.RingMessage.DIFFERS:
            return Differs(step=encoded.step, tensor=encoded.tensor)
        if kind in _KINDS:
            return Want(kind=_KINDS[kind])
        entries = _batches(encoded, tensors)
        if kind == wire_pb2.RingMessage.OFFER:
            keys = tuple([(TaskId(key.task), key.batch) for key in encoded.round])
            return Offer(step=encoded.step, round=keys, facts=entries[0].facts)
        if kind == wire_pb2.RingMessage.GO:
            return Go(step=encoded.step, entries=entries, needed=tuple(encoded.needed))
        if kind == wire_pb2.RingMessage.RESULT:
            return Result(
                before=_decode_position(encoded.position),
                batches=tuple([entry.facts for entry in entries]),
                gradient=tensors[2].copy() if len(tensors) > 2 else None,
                size_bytes=tensors[2].nbytes if len(tensors) > 2 else 0,
            )
        raise ProtocolError(f"a message of unknown kind {kind}")

    def _add_piece(self, encoded: wire_pb2.RingMessage, tensors: Sequence[Tensor]) -> State | None:
        if self._parts is None or not tensors:
            self._parts, self._received = [np.empty(size, np.uint8) for size in encoded.part_bytes], 0
        before = 0
        for part in self._parts:
            if tensors and before <= self._received < before + part.size:
                start = self._received - before
                piece = tensors[0].view(np.uint8)
                part[start : start + piece.size] = piece
                self._received += piece.size
                break
            before += part.size
        if self._received < sum(encoded.part_bytes):
            return None
        parts, self._parts = self._parts, None
        return State(position=_decode_position(encoded.position), parts=parts)


def _encode_position(position: Position) -> wire_pb2.RingPosition:
    return wire_pb2.RingPosition(
        lineages=position.lineages, step=position.step, has_model=position.has_model, has_result=position.has_result
    )


def _decode_position(encoded: wire_pb2.RingPosition) -> Position:
    return Position(
        lineages=tuple(encoded.lineages) or (0,),
        step=encoded.step,
        has_model=encoded.has_model,
        has_result=encoded.has_result,
    )


def _add_batches(encoded: wire_pb2.RingMessage, batches: Sequence[tuple[int, BatchFacts]]) -> list[Tensor]:
    """Add facts to a message; returns the tensors with their statistics and metric states."""
    for rank, facts in batches:
        encoded.batches.add(
            task=facts.task,
            batch=facts.batch,
            batches=facts.batches,
            records=facts.records,
            checksum=facts.checksum,
            empty=facts.is_empty,
            rate=facts.rate,
            statistics=facts.statistics.size,
            metric_states=facts.metric_states.size,
            rank=rank,
        )
    return [
        _joined([facts.statistics for _, facts in batches], np.float32),
        _joined([facts.metric_states for _, facts in batches], np.float64),
    ]


def _joined(arrays: Sequence[Any], dtype: Any) -> Tensor:
    return np.concatenate([np.asarray(array, dtype).reshape(-1) for array in arrays])


def _batches(encoded: wire_pb2.RingMessage, tensors: Sequence[Tensor]) -> tuple[Entry, ...]:
    statistics, metric_states = tensors[0].copy(), tensors[1].copy()
    entries = []
    for batch in encoded.batches:
        facts = BatchFacts(
            task=TaskId(batch.task),
            batch=batch.batch,
            batches=batch.batches,
            records=batch.records,
            checksum=batch.checksum,
            is_empty=batch.empty,
            rate=batch.rate if batch.HasField("rate") else None,
            statistics=statistics[: batch.statistics],
            metric_states=metric_states[: batch.metric_states],
        )
        statistics, metric_states = statistics[batch.statistics :], metric_states[batch.metric_states :]
        entries.append(Entry(rank=batch.rank, facts=facts))
    return tuple(entries)
