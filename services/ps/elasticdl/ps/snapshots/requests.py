"""What a ps is ordered to write and to load. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.messages.commands import TakeSnapshot
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.names import PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTarget:
    """What a donor copies for a move, and for which ps."""

    recipient: PodName
    partitions: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """A snapshot, or a copy for a move, that the master ordered.

    Attributes:
        request: its number; the ``SnapshotTaken`` event repeats it.
        flush: apply half-filled accumulators first.
        damaged: manifest URI of the snapshot that answered this request before and turned out to be damaged; or empty.
        move: number of the move; 0: the request is for a snapshot and not for a copy.
        freeze: refuse pushes from the copy on until the move ends.
        copy: what to copy, and for which ps; None: take a snapshot.
    """

    request: int
    cause: str
    flush: bool = False
    damaged: str = ""
    move: int = 0
    freeze: bool = False
    copy: CopyTarget | None = None

    @classmethod
    def of(cls, command: TakeSnapshot, cause: str) -> SnapshotRequest:
        """The request that a command of the master makes."""
        target = CopyTarget(recipient=command.recipient, partitions=command.partitions) if command.move else None
        return cls(
            request=command.request,
            cause=cause,
            flush=command.flush,
            damaged=command.damaged,
            move=command.move,
            freeze=command.freeze,
            copy=target,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequest:
    """Partitions to load and to hold until the placement gives them to this ps.

    Attributes:
        manifest: URI of the donor's snapshot or copy.
    """

    move: int
    partitions: Ranges
    manifest: str
    cause: str
