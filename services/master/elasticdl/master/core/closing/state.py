"""How far a job has got that is closing or stopping."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.master.core.closing.audit import AuditResult
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.names import PodName, Purpose

EXPORT = TaskRef(purpose=Purpose.EXPORT, number=0)
"""The task that writes the job's output; export tasks with other numbers save an evaluated model."""
EXPORT_TASKS = ((EXPORT.number, EXPORT.number + 1),)


@dataclass(slots=True, kw_only=True)
class Closing:
    """The end of a job whose training is complete.

    Attributes:
        request: number of the order for final snapshots.
        damaged: ps -> its final snapshots that turned out to be damaged, the last one at the end.
        reading: ps whose ledgers are being read from storage.
        export_dispatch: number of the dispatch of the export task; 0: it was not dispatched.
    """

    request: int = 0
    asked: set[PodName] = field(default_factory=set)
    manifests: dict[PodName, str] = field(default_factory=dict)
    damaged: dict[PodName, list[str]] = field(default_factory=dict)
    reading: set[PodName] = field(default_factory=set)
    ledgers: dict[PodName, tuple[GroupLedger, ...]] = field(default_factory=dict)
    audit: AuditResult | None = None
    export_dispatch: int = 0
    exported: bool = False


@dataclass(slots=True, kw_only=True)
class Stopping:
    """The end of a job that was asked to stop, or has failed.

    Attributes:
        request: number of the order for last snapshots.
        overdue: the time limit for stopping has passed.
    """

    request: int = 0
    asked: set[PodName] = field(default_factory=set)
    saved: set[PodName] = field(default_factory=set)
    overdue: bool = False
