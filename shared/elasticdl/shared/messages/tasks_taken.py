"""``TasksTaken``: the event of a worker that takes several short tasks at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTask:
    """One of the tasks.

    Attributes:
        number: its number.
        reply: serves to return the delivery.
    """

    number: int
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksTaken:
    """A worker took the first delivery of several train tasks of a ``dispatch``, to train one after the other."""

    dispatch: int
    tasks: tuple[TakenTask, ...]
