"""The web server, which wakes up seldom without requests: it runs beside jobs that need the CPU."""

from __future__ import annotations

import asyncio

import uvicorn

TICK_S = 0.5
"""Seconds between two looks whether the server has to end. Uvicorn's 0.1 s cost 0.15 % of a core."""


class Server(uvicorn.Server):
    """Uvicorn's server with fewer ticks."""

    async def main_loop(self) -> None:
        """Return when the server has to end."""
        while not await self.on_tick(0):  # 0: the time in the answers' headers is the present one.
            await asyncio.sleep(TICK_S)
