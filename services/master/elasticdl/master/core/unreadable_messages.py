"""The messages that can't be read: how many there are, the first ones, and whether the job needs one of them.

An event of a worker or a ps can be missing: the ledgers decide what is left to do. A decision of a master and the first
event of a run can't, because the state follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticdl.shared.messages.events import LogRecord, MessageUnreadable
from elasticdl.shared.names import Incarnation, PodName, Service

KEPT = 8
"""Messages that are remembered: the first ones. Of all others only the number is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAside:
    """A message that can't be read; ``sender``: the process under whose subject it was stored, or that reported it."""

    sender: PodName
    message: MessageUnreadable


@dataclass(slots=True, kw_only=True)
class UnreadableMessages:
    """The messages of a job that can't be read.

    Attributes:
        last_seq: log sequence of the last record that is unreadable or reports an unreadable message.
        lost_seq: log sequence of the first record that can't be read or replaced; 0: none.
    """

    count: int = 0
    first: list[PutAside] = field(default_factory=list)
    last_seq: int = 0
    lost_seq: int = 0

    def add(self, record: LogRecord, message: MessageUnreadable, seen: dict[Incarnation, int]) -> None:
        """Count a record, once. ``seen``: highest applied record of each incarnation."""
        if record.seq <= self.last_seq:
            return
        self.last_seq = record.seq
        self.count += 1
        envelope = record.envelope
        if len(self.first) < KEPT:
            self.first.append(PutAside(sender=envelope.name, message=message))
        # A message of another program has no id, or one that is known: then nothing is lost.
        is_of_sender = bool(envelope.number) and envelope.number == seen.get(envelope.incarnation, 0) + 1
        opens_run = envelope.service is Service.LAUNCHER and envelope.number == 1
        if message.seq == record.seq and is_of_sender and (envelope.service is Service.MASTER or opens_run):
            self.lost_seq = self.lost_seq or record.seq
