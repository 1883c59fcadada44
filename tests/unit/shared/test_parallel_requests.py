"""Requests for many objects, some at a time."""

from __future__ import annotations

import threading

import pytest

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.storage import for_each


def test_results_come_in_the_order_of_the_items() -> None:
    assert list(for_each(range(5000), lambda number: number * 2)) == list(range(0, 10_000, 2))
    assert list(for_each((), str)) == []


def test_several_requests_are_made_at_the_same_time() -> None:
    together = threading.Barrier(16)
    assert len(list(for_each(range(16), lambda number: together.wait(60)))) == 16


def test_the_error_of_the_first_item_that_failed_is_raised() -> None:
    def request(number: int) -> int:
        if number >= 3:
            raise PermanentError(f"no {number}")
        return number

    with pytest.raises(PermanentError, match="no 3"):
        list(for_each(range(5000), request))
