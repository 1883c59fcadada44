from __future__ import annotations

import pytest

from elasticdl.shared.bus import subjects
from elasticdl.shared.names import JobId, PodName, Purpose, Service

JOB = JobId("mnist-1a2b3c")
PS = PodName("ps-0")


def test_the_table_lists_what_the_functions_build() -> None:
    built = {
        subjects.task(JOB, Purpose.TRAIN).replace("train", "<purpose>"),
        subjects.task(JOB, Purpose.TRAIN, again=True).replace("train", "<purpose>"),
        subjects.event(JOB, Service.PS, PS).replace("ps.ps-0", "<service>.<name>"),
        subjects.decision(JOB),
        subjects.register(JOB, PS).replace("ps-0", "<ps>"),
        subjects.register(JOB, subjects.PLACEMENT),
        subjects.register(JOB, subjects.RING),
        subjects.core(JOB, "master").replace("master", "<service>"),
        subjects.core(JOB, "master-7").replace("master-7", "<service>-<stretch>"),
        subjects.core(JOB, "master.a-0").replace("master.a-0", "<service>.<write>-<part>"),
        subjects.payload(JOB, "a-0").replace("a-0", "<digest>-<part>"),
        subjects.states(JOB, "epoch-0").replace("epoch-0", "<group>"),
        subjects.heartbeat(JOB, Service.PS, PS).replace("ps.ps-0", "<service>.<name>"),
        subjects.wake(JOB),
        subjects.order(JOB, PS).replace("ps-0", "<pod>"),
    }
    assert {each.replace(JOB, "<job>") for each in built} == {row.subject for row in subjects.TABLE}


@pytest.mark.parametrize("name", ["ps-0", "ps-0.a-0", subjects.PLACEMENT, subjects.RING])
def test_a_registers_name_comes_back_from_its_subject(name: str) -> None:
    assert subjects.register_name(JOB, subjects.register(JOB, name)) == name


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "a b", "a\r\nPUB x"])
def test_names_that_would_change_a_subjects_meaning_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="subject"):
        subjects.order(JOB, PodName(name))
