"""What lies between processes: latency, loss, partitions. Decides the fate of every message when it is sent."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.sim.loop import VirtualLoop

BROKER = "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How bad the network is while faults are on.

    Attributes:
        latency_s: usual time of a message on its way; up to five times as long while faults are on.
        lost: shard of requests to the broker that are lost before they arrive.
        unanswered: shard of requests to the broker that are carried out and not acknowledged.
        late: shard of requests to the broker that arrive seconds later, after having been repeated.
    """

    latency_s: float = 0.001
    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0


class Network:
    """Knows who reaches whom.

    Args:
        loop: the virtual time.
        random: decides about single messages.
        weather: while faults are on.
    """

    def __init__(self, loop: VirtualLoop, random: Random, weather: Weather) -> None:
        self.loop = loop
        self.random = random
        self.weather = weather
        self.calm = False
        """Faults are off."""
        self.delayed: set[str] = set()
        """Whose next request to the broker takes seconds."""
        self._cuts: dict[frozenset[str], int] = {}

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between two until ``heal``; cuts add up."""
        pair = frozenset((one, other))
        self._cuts[pair] = self._cuts.get(pair, 0) + 1

    def heal(self, one: str, other: str) -> None:
        """Take one cut back."""
        pair = frozenset((one, other))
        self._cuts[pair] -= 1
        if not self._cuts[pair]:
            del self._cuts[pair]

    def reaches(self, one: str, other: str) -> bool:
        """Whether messages pass at the moment."""
        return not self._cuts or frozenset((one, other)) not in self._cuts

    def latency_s(self) -> float:
        """Seconds that one message is on its way."""
        spread = self.random.random()
        return self.weather.latency_s * (0.5 + spread if self.calm else 0.5 + 4.5 * spread * spread)

    def fate(self) -> str:
        """What becomes of a request to the broker: ``ok``, ``lost``, ``unanswered`` or ``late``."""
        weather = self.weather
        if self.calm or not (weather.lost or weather.unanswered or weather.late):
            return "ok"
        draw = self.random.random()
        for fate, shard in (("lost", weather.lost), ("unanswered", weather.unanswered), ("late", weather.late)):
            if draw < shard:
                return fate
            draw -= shard
        return "ok"
