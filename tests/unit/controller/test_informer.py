"""``Informer``: an object that can't be read doesn't end the watch of the others."""

from __future__ import annotations

import threading

from tests.deadline import DEADLINE_S
from tests.unit.shared_kubernetes.memory_api import MemoryApi

from elasticdl.controller.service.informer import Informer
from elasticdl.shared.kubernetes.kinds import POD, Manifest
from elasticdl.shared.kubernetes.quantities import amount


def test_an_odd_object_does_not_count_and_the_others_do() -> None:
    api = MemoryApi()
    api.appear(_pod("odd", "+-5"))
    api.appear(_pod("listed", "500m"))
    has_both = threading.Event()

    def changed() -> None:
        if sorted(informer.all()) == [0.5, 2.0]:
            has_both.set()

    informer = Informer(api, POD, lambda pod: amount(pod["cpu"]), changed, everywhere=True)
    informer.start()
    assert informer.is_synced.wait(DEADLINE_S)
    api.appear(_pod("changed", "two"))
    api.appear(_pod("watched", "2"))
    assert has_both.wait(DEADLINE_S)
    informer.stop()


def _pod(name: str, cpu: str) -> Manifest:
    return {"metadata": {"name": name}, "cpu": cpu}
