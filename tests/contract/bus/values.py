"""Values that the tests send."""

from __future__ import annotations

from random import Random

from elasticdl.shared.job.tasks import TaskMessage, TaskRef
from elasticdl.shared.messages.events import Decided, Envelope, Event, FailureKind, StepReached, WorkerFailed
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


def large_event(number_bytes: int, *, salt: str = "") -> WorkerFailed:
    """An event with about so many bytes, which do not compress."""
    noise = Random(f"{number_bytes}{salt}").randbytes(number_bytes // 2).hex()
    return WorkerFailed(kind=FailureKind.USER_CODE, message="the model fails", traceback=noise)


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
