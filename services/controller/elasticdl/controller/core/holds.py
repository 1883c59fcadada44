"""Room of ps that are about to leave. They hold it until their groups have moved to the other ps of their job."""

from __future__ import annotations

from collections import Counter

from elasticdl.controller.core.resources import Amounts
from elasticdl.controller.core.rooms import Rooms


class Holds:
    """Which ps hold room. Those of a job that leaves as a whole hold none: they move nothing."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._staying: Counter[str] = Counter()
        """Job -> its master and ps that stay."""
        self._leaving: dict[str, Counter[tuple[str, Amounts]]] = {}
        """Job -> node and request -> its ps there that are about to leave."""

    def leave(self, job: str, node: str, request: Amounts, times: int) -> None:
        """A ps is about to leave (1), or not any more (-1)."""
        leaving = self._leaving.setdefault(job, Counter())
        leaving[node, request] += times
        if not leaving[node, request]:
            del leaving[node, request]
        if not leaving:
            del self._leaving[job]
        if job in self._staying:
            self._rooms.hold(node, request, times)

    def stay(self, job: str, times: int) -> None:
        """A master or ps comes (1) or goes (-1)."""
        had = self._staying[job]
        self._staying[job] = has = had + times
        if not has:
            del self._staying[job]
        if job in self._leaving and bool(has) != bool(had):
            for (node, request), pods in self._leaving[job].items():
                self._rooms.hold(node, request, times * pods)
