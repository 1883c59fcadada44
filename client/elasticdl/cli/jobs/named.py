"""Which job a user means."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.shared.errors import UserError
from elasticdl.shared.names import JobId


def named(job: str, ids: Sequence[JobId]) -> JobId | None:
    """The job of an id or a name; None: no job has it. Raises ``UserError``: several jobs have that name."""
    if job in ids:
        return JobId(job)
    found = [each for each in ids if each.rpartition("-")[0] == job]
    if len(found) > 1:
        raise UserError(f"{len(found)} jobs are named {job!r}", hint=f"Give the id of one of them: {', '.join(found)}.")
    return found[0] if found else None
