"""What a ps is asked to write, and when it does so unasked. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.messages.commands import TakeSnapshot
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.names import PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What a donor writes for a move: some partitions of what it serves.

    Attributes:
        recipient: whose folder it goes to.
        partitions: which.
    """

    recipient: PodName
    partitions: Ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """When snapshots are due.

    Attributes:
        interval_s: seconds between two; 0: none by the clock. Nothing is written while nothing was absorbed.
        first_s: seconds from the start of a process to its first one. The pauses double from there up to
            ``interval_s``, so that a ps that dies more often than every ``interval_s`` keeps most of what it learned.
        steps: additional ones at every multiple of so many steps; 0: none.
        chain_max: snapshots that build on each other before the next one is full again.
        chains_kept: chains that are kept whole, for when an object of the last one is damaged.
        retry_s: seconds before a snapshot that the store did not take is tried again.
    """

    interval_s: float
    first_s: float = 5.0
    steps: int = 0
    chain_max: int = 8
    chains_kept: int = 2
    retry_s: float = 1.0

    def pause_s(self, taken: int) -> float:
        """Seconds until the next one by the clock, after ``taken`` in this life; 0: the clock does not ask for one."""
        return min(self.interval_s, self.first_s * 2.0 ** min(taken, 16))

    def wait_s(self, *, due_s: float, now_s: float, has_model: bool) -> float | None:
        """Seconds until the clock makes a snapshot due; None: it does not, somebody has to say that there is work.

        Args:
            due_s: when the next one is due, by the clock of ``now_s``.
            now_s: monotonic clock.
            has_model: whether there is anything to save.
        """
        return max(0.0, due_s - now_s) if self.interval_s and has_model else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A snapshot that somebody asked for.

    Attributes:
        request: its number; the SnapshotTaken carries it.
        cause: id of what asked, for the log.
        flush: make an update of half-filled accumulators first.
        damaged: the snapshot that it got before, if that one is damaged; empty otherwise.
        move: not 0: what is wanted is a copy for this move.
        freeze: absorb nothing afterwards until the move is over.
        copy: what and for whom.
    """

    request: int
    cause: str
    flush: bool = False
    damaged: str = ""
    move: int = 0
    freeze: bool = False
    copy: Copy | None = None

    @classmethod
    def of(cls, command: TakeSnapshot, cause: str) -> Order:
        """The order that a command gives."""
        return cls(
            request=command.request,
            cause=cause,
            flush=command.flush,
            damaged=command.damaged,
            move=command.move,
            freeze=command.freeze,
            copy=Copy(recipient=command.recipient, partitions=command.partitions) if command.move else None,
        )
