from __future__ import annotations

import tracemalloc
import zlib
from random import Random

import pytest

from elasticdl.shared.messages.compression import SMALL_BYTES, decompressed, decompressed_object


@pytest.mark.parametrize("content", [b"", b"a", bytes(SMALL_BYTES), Random(1).randbytes(9 << 20)])
def test_content_within_the_limits_is_returned(content: bytes) -> None:
    assert decompressed(zlib.compress(content), 1 << 30) == content


def test_a_few_bytes_that_stand_for_many_take_no_more_memory_than_the_limit() -> None:
    packed = zlib.compress(bytes(1 << 28), 9)
    tracemalloc.start()
    with pytest.raises(zlib.error, match="stand for more than"):
        decompressed(packed, 1 << 30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < (1 << 28) / 2


def test_the_limit_counts_whatever_the_ratio() -> None:
    packed = zlib.compress(bytes(range(256)) * 10)
    with pytest.raises(zlib.error, match="stand for more than 2559"):
        decompressed(packed, 2559)
    assert len(decompressed(packed, 2560)) == 2560


def test_objects_of_the_storage_may_repeat_themselves() -> None:
    content = bytes(3 * SMALL_BYTES)
    assert decompressed_object(zlib.compress(content, 9)) == content


PACKED = zlib.compress(b"content")


@pytest.mark.parametrize("damaged", [PACKED[:-1], PACKED + b"x", b"", b"xx"])
def test_damaged_bytes_are_an_error(damaged: bytes) -> None:
    with pytest.raises(zlib.error):
        decompressed(damaged, 100)
