"""Registered snapshots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class RegisteredSnapshot:
    """The latest registered snapshot of a ps.

    Attributes:
        size_bytes: bytes written for it.
        seconds: from the cut to the registration.
        time_s: when the ps reported it.
        step: batches that every group in it has absorbed.
    """

    manifest: str
    size_bytes: int
    seconds: float
    time_s: float
    step: int = 0
