"""Points in a log, and conditions on its events."""

from __future__ import annotations

import time

import pytest
from tests.unit.views.recorded import recorded

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import time_of_day
from elasticdl.views.points import Point, condition, is_type, processes_of

KILLED = recorded("ps-killed")
LOST = 39
"""The record that says that ps-0 was killed."""


def found(text: str, *, is_end: bool = True) -> int:
    return Point.of("until", text).find(KILLED, is_end=is_end)


def test_a_number_is_a_point() -> None:
    assert (found("39"), found("#39"), found(" 39 ")) == (39, 39, 39)


@pytest.mark.parametrize("text", ["first PsLost", "last pslost", "first PodExited", "First  psLost"])
def test_an_event_is_a_point(text: str) -> None:
    assert found(text) == LOST


def test_the_last_event_of_a_type() -> None:
    assert found("last PodExited") == 123
    assert found("first WorkerLost") == 0
    assert found("first MasterLost") == 0
    assert found("last JobEnded") == len(KILLED)


def test_a_time_is_a_point() -> None:
    time_s = KILLED[LOST - 1].envelope.time_s
    clock = time_of_day(time_s)
    second = time.strftime("%H:%M:%S", time.localtime(time_s))
    day = time.strftime("%Y-%m-%d", time.localtime(time_s))
    assert found(clock, is_end=False) == LOST
    assert found(second, is_end=True) == LOST - 1
    assert found(f"{day}T{second}", is_end=True) == LOST - 1
    elapsed = time_s - KILLED[0].envelope.time_s + 0.001
    assert found(f"+{elapsed:.4f}s", is_end=True) == LOST
    assert found("+1h", is_end=True) == len(KILLED)
    assert found("+1h", is_end=False) == 0
    assert found("+0s", is_end=False) == 1


@pytest.mark.parametrize("text", ["", "0", "-3", "noon", "first", "+abc", "25", "12:61:00", "first Foo"])
def test_what_is_no_point_is_refused(text: str) -> None:
    if text == "25":
        assert found(text) == 25
        return
    with pytest.raises(UserError) as refused:
        found(text)
    assert refused.value.usage


def test_an_unknown_type_names_a_similar_one() -> None:
    with pytest.raises(UserError, match="Did you mean 'WorkerLost'"):
        is_type("WorkersLost")


def test_conditions() -> None:
    def seqs(text: str) -> list[int]:
        meets = condition(text)
        return [record.seq for record in KILLED if meets(record.envelope)]

    assert LOST in seqs("ps=ps-0") and LOST in seqs("cause=preempted")
    assert seqs("cause=preempted") == [LOST]
    assert seqs("task=23") == seqs("task=train 23") == [96, 98]
    assert 3 in seqs("worker=worker-0"), "a decision that starts it is about it"
    assert set(seqs("name=worker-0")) < set(seqs("worker=worker-0"))
    for text in ("worker", "worker=", "colour=red"):
        with pytest.raises(UserError):
            condition(text)


def test_the_processes_of_a_decision_are_those_of_its_commands() -> None:
    assert {"master", "ps-0", "worker-1"} <= processes_of(KILLED[2].envelope)
