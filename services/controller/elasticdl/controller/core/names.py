"""Names of pods that start."""

from __future__ import annotations

from collections.abc import Container

from elasticdl.controller.core.cluster import Role
from elasticdl.controller.core.view import View

_INFIXES = {role: f"-{role.value}-" for role in Role}
"""Between the job and the number in the name of a pod."""


class Names:
    """The names of a decision: numbers that no pod of the job has."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._next: dict[tuple[str, Role], int] = {}
        """All smaller numbers are taken."""

    def new(self, job: str, role: Role, starts: Container[str]) -> str:
        """The next one; ``starts``: names that the decision has given."""
        number, prefix, view = self._next.get((job, role), 0), job + _INFIXES[role], self._view
        pod = f"{prefix}{number}"
        # A pod that was ordered and has to leave again may still come, and leaves later.
        while pod in view.pods or pod in starts or pod in view.starts or pod in view.drains:
            number += 1
            pod = f"{prefix}{number}"
        self._next[job, role] = number + 1
        return pod

    def free(self, job: str, role: Role) -> None:
        """A pod does not start after all: its number can be given again."""
        self._next[job, role] = 0

    def clear(self) -> None:
        """A new decision begins."""
        self._next.clear()
