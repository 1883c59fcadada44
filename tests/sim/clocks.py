"""The clocks of simulated processes."""

from __future__ import annotations

from tests.sim.loop import VirtualLoop

NOW_S = 1000.0
"""When simulations begin, seconds since the epoch. After a lost log, numbers continue from the time: as in the real
world that is more than any number that was counted."""


class ProcessClock:
    """See ``elasticdl.shared.process.clock.Clock``."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return NOW_S + self._loop.time()

    def monotonic(self) -> float:
        """Monotonic clock, seconds."""
        return self._loop.time()
