"""A simulated process: a core, its lanes, a replica."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.sim.ring.replica import Replica

from elasticdl.shared.messages.commands import RingMember
from elasticdl.worker.ring.core import RingCore, commands, events
from elasticdl.worker.ring.core.messages import BatchKey
from elasticdl.worker.ring.ports import Generation

AGAIN = "connects again"
"""What is done after a pause, so almost everything else comes before it."""


def name_of(command: commands.RingCommand) -> str:
    """What a schedule calls a command."""
    return AGAIN if isinstance(command, commands.Connect) and command.is_again else type(command).__name__


@dataclass
class SimMember:
    """One process: a core, its lanes, a replica."""

    identity: RingMember
    core: RingCore
    replica: Replica
    lanes: dict[commands.Lane, deque[commands.RingCommand]] = field(
        default_factory=lambda: {lane: deque() for lane in commands.Lane}
    )
    published: deque[Generation] = field(default_factory=deque)
    reducing: commands.Reduce | None = None
    checked: events.WeightsChecked | None = None
    """What its state lane tells the core next."""
    compared: set[tuple[int, int]] = field(default_factory=set)
    """Generations and steps that its weights were compared in."""
    kept: set[BatchKey] = field(default_factory=set)
    computed: dict[BatchKey, int] = field(default_factory=dict)
    """Batches that need not be computed again, and the generation that credits them."""
    pulled: BatchKey | None = None
    """With tables: the batch that it has rows for."""
    absorbed: BatchKey | None = None
    """With tables: the batch that the ps has and that is not contributed yet."""
    pushed: deque[events.Contributed] = field(default_factory=deque)
    """Contributions that the core has not been told of."""
    needed: Sequence[int] = ()
    """The first steps whose results joiners need, as its leader has said last."""
    loads: int = 0
    is_alive: bool = True
    is_frozen: bool = False
    was_gone: bool = False
    """Whether it was declared gone, so that what it committed alone may be void."""
    initialises: bool = False

    @property
    def name(self) -> str:
        return self.identity.incarnation

    @property
    def is_busy(self) -> bool:
        """Whether its state lane has something to finish."""
        return self.reducing is not None or self.checked is not None

    @property
    def runs(self) -> bool:
        return self.is_alive and not self.is_frozen
