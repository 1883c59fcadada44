"""Copies of the state: those that join at once share one."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence

import numpy as np
from tests.unit.worker_ring.test_core import position

from elasticdl.shared.wire.buffers import Bytes
from elasticdl.worker.ring.copies import Copies


class State:
    """Counts the copies in memory."""

    def __init__(self) -> None:
        self.cuts, self.made = 0, 0

    def save(self) -> Callable[[], Sequence[Bytes]]:
        self.cuts += 1

        def make() -> Sequence[Bytes]:
            self.made += 1
            return [np.full(8, self.made, np.uint8)]

        return make


def test_ten_joiners_at_once_get_one_copy() -> None:
    state, copies = State(), Copies()
    found = [copies.take(position(1, 5), 1, since=5, save=state.save) for _ in range(10)]
    threads = [threading.Thread(target=copy.state) for copy in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (state.cuts, state.made) == (1, 1)
    assert {id(copy.state().parts[0]) for copy in found} == {id(found[0].state().parts[0])}


def test_a_later_joiner_gets_the_copy_that_is_being_sent_if_it_can_catch_up_from_there() -> None:
    state, copies = State(), Copies()
    first = copies.take(position(1, 5), 1, since=5, save=state.save)
    assert copies.take(position(1, 8), 1, since=5, save=state.save) is first
    assert first.state().position.step == 5
    assert copies.take(position(1, 8), 1, since=6, save=state.save) is not first
    assert copies.take(position(2, 8), 2, since=8, save=state.save).generation == 2


def test_a_copy_is_free_once_it_is_sent() -> None:
    state, copies = State(), Copies()
    first = copies.take(position(1, 5), 1, since=5, save=state.save)
    first.state()
    del first
    gc.collect()
    copies.take(position(1, 5), 1, since=5, save=state.save)
    assert state.cuts == 2
