"""The frame of a record in TFRecord files, which TensorBoard's event files have too.

``length (8 bytes) | masked crc32c of it (4) | data | masked crc32c of it (4)``, little-endian.
"""

from __future__ import annotations

import struct

import google_crc32c

MASK_DELTA = 0xA282EAD8
_MASK32 = 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """crc32c, rotated and shifted as TFRecord stores it."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & _MASK32


def frame(record: bytes) -> bytes:
    """One record in the format of the file."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, struct.pack("<I", masked_crc(length)), record, struct.pack("<I", masked_crc(record))))
