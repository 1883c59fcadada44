"""Jobs that take no further worker, as long as nothing of them changes."""

from __future__ import annotations


class Waits:
    """Why jobs take no further worker.

    Attributes:
        stops: job -> why it takes none, whatever room there is.
        rested: jobs with new stops, for decisions to look at.
        woken: jobs whose stops were dropped, for ``sharing`` to look at.
    """

    def __init__(self) -> None:
        self.stops: dict[str, str] = {}
        self.rested: set[str] = set()
        self.woken: list[str] = []

    def stop(self, job: str, reason: str) -> None:
        """A job takes no more."""
        self.stops[job] = reason
        self.rested.add(job)

    def drop(self, job: str) -> None:
        """A job has changed."""
        if self.stops.pop(job, None) is not None:
            self.woken.append(job)
