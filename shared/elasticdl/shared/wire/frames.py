"""The format of a frame: fixed header, tensor table, protobuf meta, then the tensors' raw bytes.

    header   magic 'EDLW' | version u8 | unused u8 | tensors u16 | meta_bytes u32 | request u64, little-endian
    table    per tensor: dtype u8 | 7 unused | elements u64
    meta     ``meta_bytes`` of protobuf
    payload  every tensor little-endian, beginning at a multiple of 64 bytes from the payload's start

Nothing here touches a socket. Every length is checked against ``FrameLimits`` before anything is allocated for it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model import aligned

Tensor = npt.NDArray[Any]
"""One-dimensional and contiguous on the wire; shapes are the messages' business."""

MAGIC = b"EDLW"
VERSION = 1
ALIGNMENT_BYTES = aligned.ALIGNMENT_BYTES
"""Where tensors begin."""

_HEADER = struct.Struct("<4sBxHIQ")
_TABLE_ENTRY = struct.Struct("<B7xQ")
HEADER_BYTES = _HEADER.size

_DTYPES: tuple[np.dtype[Any], ...] = tuple(np.dtype(name) for name in ("<f4", "<i8", "|u1", "<f8"))
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_PADDING = bytes(ALIGNMENT_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """What a frame may be at most; ``meta_bytes_max``: bytes of protobuf."""

    tensors_max: int = 64
    meta_bytes_max: int = 16 << 20
    payload_bytes_max: int = 2 << 30


HANDSHAKE_LIMITS = FrameLimits(tensors_max=0, meta_bytes_max=1 << 12, payload_bytes_max=0)
"""For peers that have not shown the token yet."""


class Header(NamedTuple):
    """A decoded header.

    Attributes:
        table_bytes: length of the tensor table that follows; 0: there are no tensors.
    """

    request: int
    table_bytes: int
    meta_bytes: int


TensorPlace = tuple[np.dtype[Any], int, int]
"""Where a tensor lies in the payload: its dtype, and its first byte and the one after its last."""


def encode(request: int, meta: bytes, tensors: Sequence[Tensor], limits: FrameLimits) -> list[memoryview | bytes]:
    """Buffers to be sent one after another; tensors are not copied, so they must not change before they are sent.

    Raises:
        ValueError: a tensor is not contiguous, not one-dimensional of a dtype without a code, or beyond a limit.
    """
    head = [_HEADER.pack(MAGIC, VERSION, len(tensors), len(meta), request)]
    payload: list[memoryview | bytes] = []
    payload_bytes = 0
    for tensor in tensors:
        code = _CODES.get(tensor.dtype)
        if code is None or tensor.ndim != 1 or not tensor.flags.c_contiguous:
            raise ValueError(f"not a flat, contiguous tensor of a known dtype: {tensor.dtype} {tensor.shape}")
        size = tensor.size
        head.append(_TABLE_ENTRY.pack(code, size))
        padding = -payload_bytes % ALIGNMENT_BYTES
        if padding:
            payload.append(_PADDING[:padding])
        if size:
            payload.append(tensor.data.cast("B"))
        payload_bytes += padding + tensor.nbytes
    if excess := _excess(len(tensors), len(meta), payload_bytes, limits):
        raise ValueError(f"frame too large to be sent: {excess}")
    head.append(meta)
    return [b"".join(head), *payload]


def decode_header(data: bytes | bytearray | memoryview, limits: FrameLimits) -> Header:
    """Read the fixed header. Raises ``ProtocolError``: not a frame of this version, or a limit is exceeded."""
    magic, version, tensors, meta_bytes, request = _HEADER.unpack(data)
    if magic != MAGIC:
        raise ProtocolError(f"not a frame: it begins with {bytes(magic)!r}")
    if version != VERSION:
        raise ProtocolError(f"frame of version {version}, this is version {VERSION}")
    if excess := _excess(tensors, meta_bytes, 0, limits):
        raise ProtocolError(f"frame too large: {excess}")
    return Header(request, tensors * _TABLE_ENTRY.size, meta_bytes)


def decode_table(table: bytes | bytearray | memoryview, limits: FrameLimits) -> tuple[list[TensorPlace], int]:
    """Read the tensor table: where each tensor lies, and the bytes of the payload.

    Raises:
        ProtocolError: an unknown dtype, or a limit is exceeded.
    """
    places = []
    end = 0
    for code, elements in _TABLE_ENTRY.iter_unpack(table):
        if code >= len(_DTYPES):
            raise ProtocolError(f"unknown dtype code {code}")
        dtype = _DTYPES[code]
        start = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        end = start + elements * dtype.itemsize
        if end > limits.payload_bytes_max:  # inside the loop: the sum of hostile lengths must not grow without bound
            raise ProtocolError(f"frame too large: more than {limits.payload_bytes_max} bytes of tensors")
        places.append((dtype, start, end))
    return places, end


def views(places: Sequence[TensorPlace], payload: Tensor) -> tuple[Tensor, ...]:
    """The tensors of a received payload (uint8), which they share."""
    return tuple([payload[start:stop].view(dtype) for dtype, start, stop in places])


def _excess(tensors: int, meta_bytes: int, payload_bytes: int, limits: FrameLimits) -> str:
    if tensors > limits.tensors_max:
        return f"{tensors} tensors, the limit is {limits.tensors_max}"
    if meta_bytes > limits.meta_bytes_max:
        return f"{meta_bytes} bytes of meta, the limit is {limits.meta_bytes_max}"
    if payload_bytes > limits.payload_bytes_max:
        return f"{payload_bytes} bytes of tensors, the limit is {limits.payload_bytes_max}"
    return ""
