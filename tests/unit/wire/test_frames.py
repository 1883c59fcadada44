"""The frame format: what goes in comes out, and nothing else gets through."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.wire.frames import (
    ALIGNMENT_BYTES,
    HEADER_BYTES,
    FrameLimits,
    Tensor,
    decode_header,
    decode_table,
    encode,
    views,
)

LIMITS = FrameLimits(tensors_max=8, meta_bytes_max=1 << 10, payload_bytes_max=1 << 16)

tensors = st.lists(
    st.sampled_from(["<f4", "<i8", "|u1", "<f8"]).flatmap(
        lambda dtype: hnp.arrays(dtype, st.integers(0, 300), elements={"allow_nan": False} if "f" in dtype else None)
    ),
    max_size=8,
)


def decode(data: bytes) -> tuple[int, bytes, tuple[Tensor, ...]]:
    header = decode_header(data[:HEADER_BYTES], LIMITS)
    table_end = HEADER_BYTES + header.table_bytes
    places, payload_bytes = decode_table(data[HEADER_BYTES:table_end], LIMITS)
    meta_end = table_end + header.meta_bytes
    payload = np.frombuffer(data[meta_end:], np.uint8)
    assert payload.size == payload_bytes
    return header.request, data[table_end:meta_end], views(places, payload)


@given(request=st.integers(0, 2**64 - 1), meta=st.binary(max_size=100), sent=tensors)
def test_round_trip(request: int, meta: bytes, sent: list[Tensor]) -> None:
    data = b"".join(bytes(part) for part in encode(request, meta, sent, LIMITS))
    got_request, got_meta, got = decode(data)
    assert (got_request, got_meta) == (request, meta)
    assert [tensor.dtype for tensor in got] == [tensor.dtype for tensor in sent]
    for one, other in zip(got, sent, strict=True):
        np.testing.assert_array_equal(one, other)


@given(data=st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES))
def test_a_random_header_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_header(b"X" + data[1:], LIMITS)


@given(table=st.integers(1, 8).flatmap(lambda n: st.binary(min_size=16 * n, max_size=16 * n)))
def test_a_random_table_stays_within_the_limits_or_is_refused(table: bytes) -> None:
    try:
        places, payload_bytes = decode_table(table, LIMITS)
    except ProtocolError:
        return
    assert payload_bytes <= LIMITS.payload_bytes_max
    assert all(start % ALIGNMENT_BYTES == 0 and start <= stop <= payload_bytes for _, start, stop in places)


@pytest.mark.parametrize(
    "tensor",
    [
        np.zeros((2, 2), np.float32),
        np.zeros(4, np.float32)[::2],
        np.zeros(4, np.int32),
        np.zeros(1 << 16, np.float32),
    ],
)
def test_what_can_not_be_sent_is_refused_before_sending(tensor: Tensor) -> None:
    with pytest.raises(ValueError, match=r"tensor|too large"):
        encode(1, b"", [tensor], LIMITS)


def test_limits_are_checked_from_the_header_alone() -> None:
    head = bytes(encode(1, b"x" * 2000, [], FrameLimits())[0])[:HEADER_BYTES]
    with pytest.raises(ProtocolError, match="2000 bytes of meta"):
        decode_header(head, LIMITS)
