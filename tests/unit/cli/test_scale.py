"""``elasticdl scale`` of a job in which a ps has no place."""

from __future__ import annotations

import pytest

from elasticdl.cli.commands.jobs import restored_ps
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import PodInstance, PodName, Service, pod_name


def pods(*pending: int) -> dict[PodName, Pod]:
    """Three ps, of which these have no place, and a worker that has none."""
    found = [pod_name(Service.PS, number) for number in range(3)]
    ps = {
        name: Pod(name=name, service=Service.PS, pending="Unschedulable: 0/1 nodes")
        if number in pending
        else Pod(name=name, service=Service.PS, phase=PodPhase.RUNNING, instance=PodInstance("1"))
        for number, name in enumerate(found)
    }
    worker = pod_name(Service.WORKER, 0)
    return {**ps, worker: Pod(name=worker, service=Service.WORKER, pending="Unschedulable: 0/1 nodes")}


def test_the_part_of_a_ps_that_is_not_wanted_is_restored() -> None:
    assert restored_ps(pods(), 1, "a-1") == []
    assert restored_ps(pods(2), 2, "a-1") == ["ps-2"]
    assert restored_ps(pods(1, 2), 1, "a-1") == ["ps-1", "ps-2"]


@pytest.mark.parametrize("ps", [2, 3, 4])
def test_a_ps_that_is_wanted_needs_a_place(ps: int) -> None:
    with pytest.raises(
        UserError, match="ps-1 is pending, so its part of the model can't move: Unschedulable"
    ) as refused:
        restored_ps(pods(1), ps, "a-1")
    assert "elasticdl scale a-1 --ps=1. " in refused.value.hint
    assert f"elasticdl resume a-1 --num_ps_pods={ps}" in refused.value.hint


def test_the_first_ps_needs_a_place_or_a_resume() -> None:
    with pytest.raises(UserError, match="ps-0 is pending") as refused:
        restored_ps(pods(0), 1, "a-1")
    assert "scale" not in refused.value.hint and "elasticdl stop a-1" in refused.value.hint
