"""What a timeline shows besides processes: where the model was, the generations of a ring, and snapshots. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import FormRing, PublishPlacement
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import PodName

KEPT_MAX = 5_000
"""Snapshots, placements and generations that are kept, of each; how many there were is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSince:
    """A version of the placement, from its decision until the next one."""

    seq: int
    time_s: float
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A generation of the ring, from its decision until the next one.

    Attributes:
        members: by seniority.
        reason: why the generation before was over.
    """

    seq: int
    time_s: float
    number: int
    members: tuple[PodName, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMark:
    """A snapshot of a ps was registered."""

    seq: int
    time_s: float
    ps: PodName
    size_bytes: int


class Marks:
    """Collects these, record by record.

    Attributes:
        snapshot_count: those that are not kept included.
    """

    def __init__(self) -> None:
        self.placements: list[PlacementSince] = []
        self.generations: list[Generation] = []
        self.snapshots: list[SnapshotMark] = []
        self.snapshot_count = 0
        self._has_ring = False

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        match record.envelope.event:
            case events.Decided(commands=commands):
                for command in commands:
                    if isinstance(command, PublishPlacement):
                        self._place(record, Placement(version=command.version, owners=command.owners))
                    elif isinstance(command, FormRing):
                        self._form(record, command)
            case events.SnapshotTaken(move=0, size_bytes=size_bytes):
                self.snapshot_count += 1
                if len(self.snapshots) < KEPT_MAX:
                    envelope = record.envelope
                    mark = SnapshotMark(seq=record.seq, time_s=envelope.time_s, ps=envelope.name, size_bytes=size_bytes)
                    self.snapshots.append(mark)
            case events.JobSubmitted(spec=spec):
                self._has_ring = spec.has_ring
                self._place(record, Placement.first_of(spec))
            case events.JobResumed(owners=owners, placement=version) if owners:
                self._place(record, Placement(version=version, owners=owners))
            case _:
                pass

    def _place(self, record: LogRecord, placement: Placement) -> None:
        known = self.placements[-1].placement.owners if self.placements else None
        if self._has_ring or placement.owners == known or len(self.placements) >= KEPT_MAX:
            return
        self.placements.append(PlacementSince(seq=record.seq, time_s=record.envelope.time_s, placement=placement))

    def _form(self, record: LogRecord, command: FormRing) -> None:
        if len(self.generations) >= KEPT_MAX or (
            self.generations and self.generations[-1].number >= command.generation
        ):
            return  # A successor of the master repeats the commands whose outcome it does not know.
        self.generations.append(
            Generation(
                seq=record.seq,
                time_s=record.envelope.time_s,
                number=command.generation,
                members=tuple(each.worker for each in command.members),
                reason=command.reason,
            )
        )
