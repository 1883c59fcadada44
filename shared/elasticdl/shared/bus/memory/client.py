"""What the parts of one client share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


class Bell:
    """Wakes everybody who waits for something new at the broker."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Something is new."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Until the next ``ring``."""
        await self._event.wait()


@dataclass(slots=True)
class Client:
    """What the parts of one client share: the broker's bell, and whether the client has hung up."""

    bell: Bell
    closed: bool = False
