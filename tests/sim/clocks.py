"""The clocks of simulated machines: each process reads its own, which drifts and jumps where a fault says so."""

from __future__ import annotations

from tests.sim.loop import VirtualLoop

NOW_S = 1000.0
"""When simulations begin, seconds since the epoch. After a lost log, numbers continue from the time: as in the real
world that is more than any number that was counted."""


class ProcessClock:
    """See ``elasticdl.shared.process.clock.Clock``. The monotonic reading drifts, the wall clock jumps as well."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._rate = 1.0
        self._since_s = loop.time()
        self._reading_s = loop.time()
        self._offset_s = NOW_S

    def now(self) -> float:
        """Wall clock, seconds since the epoch."""
        return self._offset_s + self.monotonic()

    def monotonic(self) -> float:
        """Monotonic clock, seconds."""
        return self._reading_s + (self._loop.time() - self._since_s) * self._rate

    def set_rate(self, rate: float) -> None:
        """Run faster (> 1) or slower from now on."""
        self._reading_s, self._since_s, self._rate = self.monotonic(), self._loop.time(), rate

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self._offset_s += seconds

    def delay_s(self, due_s: float) -> float:
        """True seconds until the monotonic clock shows a time; 0 if it has passed."""
        return max(0.0, due_s - self.monotonic()) / self._rate
