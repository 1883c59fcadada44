"""Values that the tests send."""

from __future__ import annotations

from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import Decided, Envelope, Event, StepReached
from elasticdl.shared.names import Incarnation, PodName, Purpose, Service


def fact(number: int, *, incarnation: str = "aaaaaaaaaaaa", event: Event | None = None) -> Envelope:
    return Envelope(
        service=Service.PS,
        name=PodName("ps-0"),
        incarnation=Incarnation(incarnation),
        number=number,
        time_s=1.5,
        event=event or StepReached(step=number),
    )


def decision(number: int, *, incarnation: str = "mmmmmmmmmmmm") -> Envelope:
    return Envelope(
        service=Service.MASTER,
        name=PodName("master"),
        incarnation=Incarnation(incarnation),
        number=number,
        time_s=2.5,
        event=Decided(term=1, after_seq=number, now_s=2.5, commands=()),
    )


def task(number: int, *, purpose: Purpose = Purpose.TRAIN, dispatch: int = 1) -> TaskMessage:
    return TaskMessage(task=TaskRef(purpose=purpose, number=number), dispatch=dispatch, term=1)
