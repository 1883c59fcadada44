"""Runs a decision core on the virtual clock: what ``CoreRunner`` does with threads, with one coroutine per lane."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from elasticdl.shared.process.core_runner import Core, SetTimer, TimerFired

if TYPE_CHECKING:
    from tests.sim.process import Process

E = TypeVar("E")
C = TypeVar("C")


class _Lane(Generic[C]):
    """The commands that wait in one lane: as much of ``asyncio.Queue`` as one reader needs, at a fifth of its cost."""

    def __init__(self) -> None:
        self._commands: deque[C] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, command: C) -> None:
        """Append a command."""
        self._commands.append(command)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> C:
        """The next command; waits for it."""
        if not self._commands:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._commands.popleft()


class SimRunner(Generic[E, C]):
    """See ``CoreRunner``.

    Args:
        process: whose core it is; its death stops every lane between two steps.
        core: decides.
        execute: executes a command on the virtual clock; returns the event with the outcome, or None.
        lane_of: the lane of a command.
    """

    def __init__(
        self,
        process: Process,
        core: Core[E | TimerFired, C | SetTimer],
        *,
        execute: Callable[[C], Awaitable[E | None]],
        lane_of: Callable[[C], str],
    ) -> None:
        self._process = process
        self._core = core
        self._execute = execute
        self._lane_of = lane_of
        self._check: Callable[[], None] = getattr(core, "check", lambda: None)
        self._lanes: dict[str, _Lane[C]] = {}
        self._timers: dict[str, float] = {}

    def post(self, event: E | TimerFired) -> None:
        """Give the core an event; its invariants are checked after each one."""
        loop, clock = self._process.world.loop, self._process.clock
        for command in self._core.handle(event, clock.monotonic()):
            if isinstance(command, SetTimer):
                self._timers[command.name] = command.due_s
                loop.call_later(
                    clock.delay_s(command.due_s), self._fire, command, context=self._process.instance.context
                )
            else:
                self._lane(self._lane_of(command)).put(command)
        self._check()

    def _lane(self, name: str) -> _Lane[C]:
        if name not in self._lanes:
            self._lanes[name] = _Lane()
            self._process.spawn(lambda: self._serve(self._lanes[name]))
        return self._lanes[name]

    async def _serve(self, lane: _Lane[C]) -> None:
        while True:
            event = await self._execute(await lane.get())
            if event is not None:
                self.post(event)

    def _fire(self, timer: SetTimer) -> None:
        if self._timers.get(timer.name) == timer.due_s:
            del self._timers[timer.name]
            self.post(TimerFired(name=timer.name, due_s=timer.due_s))
