"""Jobs that take no further worker, as long as nothing of them changes."""

from __future__ import annotations

from collections.abc import Hashable

_TRIALS_MAX = 100_000
"""Most trials that have numbers."""


class Waits:
    """Why jobs take no further worker.

    Attributes:
        stops: job -> why it takes none, whatever room there is.
        rested: jobs with new stops, for decisions to look at.
        woken: jobs whose stops were dropped, for ``sharing`` to look at.
        trials: job -> number of what it takes to give it one more worker, and its share then. Jobs with one number,
            and as large a share, get one or not alike.
    """

    def __init__(self) -> None:
        self.stops: dict[str, str] = {}
        self.rested: set[str] = set()
        self.woken: list[str] = []
        self.trials: dict[str, tuple[int, float]] = {}
        self._numbers: dict[tuple[Hashable, ...], int] = {}

    def stop(self, job: str, reason: str) -> None:
        """A job takes no more."""
        self.stops[job] = reason
        self.rested.add(job)

    def note_trial(self, job: str, key: tuple[Hashable, ...], share: float) -> int:
        """Remember what it takes to give a job one more worker; returns its number."""
        number = self._numbers.setdefault(key, len(self._numbers))
        self.trials[job] = number, share
        return number

    def drop(self, job: str) -> None:
        """A job has changed."""
        if self.stops.pop(job, None) is not None:
            self.woken.append(job)
        self.trials.pop(job, None)

    def trim(self) -> None:
        """Between two decisions: there are not too many numbers."""
        if len(self._numbers) > _TRIALS_MAX:
            self._numbers.clear()
            self.trials.clear()
