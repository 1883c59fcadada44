"""Memory by the page: zero, growing without losing anything, returned."""

from __future__ import annotations

import numpy as np
import pytest

from elasticdl.ps.engine.pages import Pages


def test_new_memory_is_zero_and_old_memory_is_kept() -> None:
    pages = Pages(4 * 1000)
    view = pages.view(np.float32, 1000)
    assert not view.any()
    view[:] = 7.0
    del view
    pages.grow(4 * 10_000_000)
    view = pages.view(np.float32, 10_000_000)
    assert (view[:1000] == 7.0).all()
    assert not view[1000:].any()
    del view
    pages.free()


def test_memory_is_returned_only_when_no_view_is_left() -> None:
    pages = Pages(100)
    view = pages.view(np.int32, 25)
    with pytest.raises(BufferError):
        pages.grow(200)
    with pytest.raises(BufferError):
        pages.free()
    assert view.size == 25


def test_what_there_is_no_room_for_is_a_memory_error() -> None:
    pages = Pages(8)
    pages.view(np.int64, 1)[0] = 3
    with pytest.raises(MemoryError):
        pages.grow(1 << 60)
    assert pages.view(np.int64, 1)[0] == 3
    with pytest.raises(MemoryError):
        Pages(1 << 60)
