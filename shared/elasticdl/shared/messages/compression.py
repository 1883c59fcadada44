"""Decompresses what other processes wrote, with a limit: a few bytes of zlib can stand for a thousand times as many."""

from __future__ import annotations

import zlib

RATIO_MAX = 200
"""Most bytes that a compressed byte of a message may stand for. Ours stay far below."""
ANY_RATIO = 1032
"""As many as zlib can: for objects of the job's storage, where tables may repeat themselves."""
STORED_BYTES_MAX = 1 << 30
"""The largest content of an object of the job's storage: the specification of a job with a million files has 100 MB."""
SMALL_BYTES = 4 << 20
"""Content up to this size may be compressed as well as it can be: zeros, or the same line many times."""


def decompressed_object(data: bytes) -> bytes:
    """The content of a compressed object of the job's storage; errors as of ``decompressed``."""
    return decompressed(data, STORED_BYTES_MAX, ratio_max=ANY_RATIO)


def decompressed(data: bytes, bytes_max: int, *, ratio_max: int = RATIO_MAX) -> bytes:
    """The content of compressed bytes. Takes no more memory than the limit, whatever the bytes are.

    Args:
        ratio_max: most bytes of content for each of ``data``, unless the content is small.

    Raises:
        zlib.error: the bytes are damaged, incomplete, or stand for more than the limit.
    """
    limit = min(bytes_max, max(SMALL_BYTES, ratio_max * len(data)))
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(data, limit + 1)
    if len(content) > limit:
        raise zlib.error(f"{len(data)} bytes stand for more than {limit}")
    if not decompressor.eof or decompressor.unused_data:
        raise zlib.error("the compressed bytes are incomplete, or other bytes follow them")
    return content
