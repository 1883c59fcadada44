"""The end of a child process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of one process.

    Attributes:
        name: the name that it ran under.
        exit_code: its exit code, or minus the number of the signal that ended it.
    """

    name: str
    pid: int
    exit_code: int
