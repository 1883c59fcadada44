"""A move of partitions from one parameter server to another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.names import PodName


class MovePhase(Enum):
    """Phase of a move; ``decide.py`` has the table of transitions."""

    BEGUN = "begun"
    COPYING = "copying"
    COPIED = "copied"
    LOADING = "loading"
    LOADED = "loaded"
    FREEZING = "freezing"
    FROZEN = "frozen"
    CATCHING_UP = "catching up"
    HELD = "held"
    ABORTED = "aborted"


@dataclass(slots=True, kw_only=True)
class Move:
    """Partitions that move from one ps to another.

    Attributes:
        number: number of the move, and of the version of the placement that it leads to.
        stored: the donor is not running: the partitions are read from its last snapshot.
        request: number of the last snapshot order.
        copies: how many copies the donor has written: first everything, then what had changed since.
        ledgers: ledgers of the groups that the recipient holds.
    """

    number: int
    donor: PodName
    recipient: PodName
    partitions: Ranges
    stored: bool
    phase: MovePhase = MovePhase.BEGUN
    request: int = 0
    copies: int = 0
    size_bytes: int = 0
    before_bytes: int = 0
    manifest: str = ""
    ledgers: tuple[GroupLedger, ...] = ()
