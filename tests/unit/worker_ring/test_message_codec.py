"""Messages between members survive the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.names import TaskId
from elasticdl.shared.proto import wire_pb2
from elasticdl.worker.ring import message_codec
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
from elasticdl.worker.ring.message_codec import Decoder, encode, state_frames
from elasticdl.worker.ring.ports import BatchFacts

POSITION = Position(lineages=(3, 4), step=17, has_model=True, has_result=True)


def facts(task: int, **other: Any) -> BatchFacts:
    return BatchFacts(
        task=TaskId(task),
        batch=2,
        batches=9,
        records=64,
        checksum=2**63 + task,
        is_empty=False,
        statistics=np.arange(task, dtype=np.float32),
        metric_states=np.arange(2 * task, dtype=np.float64),
        **other,
    )


def sent(message: Message) -> Message | None:
    return Decoder().decode(*encode(message))


def same(one: BatchFacts, other: BatchFacts) -> bool:
    for name in BatchFacts.__slots__:
        left, right = getattr(one, name), getattr(other, name)
        if not (np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right):
            return False
    return True


@pytest.mark.parametrize(
    "message", [Hello(position=POSITION), Opened(position=Position()), Want(kind=Kind.RESULT), Want(kind=Kind.STATE)]
)
def test_messages_without_batches(message: Message) -> None:
    assert sent(message) == message


def test_an_offer() -> None:
    offer = Offer(step=5, round=((TaskId(1), 2), (TaskId(4), 2)), facts=facts(4, rate=0.25))
    received = sent(offer)
    assert isinstance(received, Offer)
    assert (received.step, received.round) == (5, offer.round)
    assert same(received.facts, offer.facts)


def test_a_go() -> None:
    entries = (Entry(rank=2, facts=facts(0)), Entry(rank=0, facts=facts(3, rate=0.0)), Entry(rank=1, facts=facts(1)))
    received = sent(Go(step=5, entries=entries, needed=(3, 0)))
    assert isinstance(received, Go)
    assert (received.step, received.needed) == (5, (3, 0))
    assert [entry.rank for entry in received.entries] == [2, 0, 1]
    assert all(same(one.facts, other.facts) for one, other in zip(received.entries, entries, strict=True))


@pytest.mark.parametrize("gradient", [None, np.arange(5.0)])
def test_a_result(gradient: Any) -> None:
    received = sent(Result(before=Position(lineages=(4,), step=5), batches=(facts(1), facts(2)), gradient=gradient))
    assert isinstance(received, Result)
    assert (received.before.lineages, received.step, len(received.batches)) == ((4,), 5, 2)
    assert np.array_equal(received.gradient, gradient) if gradient is not None else received.gradient is None


@pytest.mark.parametrize("sizes", [[], [0], [1000], [10, 0, 2500, 1]])
def test_a_state_in_pieces(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_codec, "PIECE_BYTES", 900)
    parts = [np.arange(size).astype(np.uint8) for size in sizes]
    decoder = Decoder()
    for _ in range(2):  # The second copy on a connection.
        received = [
            decoder.decode(meta, tensors) for meta, tensors in state_frames(State(position=POSITION, parts=parts))
        ]
        assert received[:-1] == [None] * (len(received) - 1)
        state = received[-1]
        assert isinstance(state, State)
        assert state.position == POSITION
        assert [part.tolist() for part in state.parts] == [part.tolist() for part in parts]


def test_weights_and_differences() -> None:
    for message in (Weights(step=7, checksums=(0, 1 << 31, 5)), Differs(step=7, tensor=3), Near()):
        assert sent(message) == message


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Decoder().decode(b"\xff\xff", [])
    with pytest.raises(ProtocolError):
        Decoder().decode(encode(Offer(step=1, round=(), facts=facts(1)))[0], [])
    unknown = wire_pb2.RingMessage(kind=99)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="unknown kind 99"):
        Decoder().decode(unknown.SerializeToString(), encode(Offer(step=1, round=(), facts=facts(1)))[1])
