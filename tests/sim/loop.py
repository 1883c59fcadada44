"""An asyncio loop on a virtual clock: deterministic, single-threaded, and aware of whose code it runs.

Every callback carries the context of the process that it belongs to. A callback of a dead process is dropped: SIGKILL
runs no ``finally``. One of a frozen process (SIGSTOP) is kept until the process continues. What belongs to no process
(messages on their way, the broker) always runs.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, cast
from weakref import WeakSet

_OWNER: ContextVar[Instance | None] = ContextVar("_OWNER", default=None)
NO_PROCESS = Context()
"""Context of what belongs to no process."""


class Instance:
    """One instance of a process, as the loop sees it."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self._loop = loop
        self._kept: list[Handle] = []
        self._coroutines = WeakSet[Coroutine[Any, Any, Any]]()
        self.context = Context()
        self.context.run(_OWNER.set, self)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a part of this process."""
        self.own(coroutine)
        return asyncio.Task(coroutine, loop=self._loop.asyncio, context=self.context)

    def own(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """A coroutine that runs in this process later: if the process dies before, Python warns unless it is closed."""
        if self.alive:
            self._coroutines.add(coroutine)
        else:
            coroutine.close()

    def kill(self) -> None:
        """SIGKILL."""
        self.alive = False
        self._kept.clear()
        for coroutine in self._coroutines:
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True

    def unfreeze(self) -> None:
        """SIGCONT: everything that came due meanwhile happens now, in order."""
        self.frozen = False
        kept, self._kept = self._kept, []
        for handle in kept:
            self._loop.ready.append(handle)

    def keep(self, handle: Handle) -> None:
        """A callback came due while the process is frozen."""
        self._kept.append(handle)


class Handle:
    """A callback with its context."""

    __slots__ = ("arguments", "callback", "context", "is_cancelled", "owner")

    def __init__(self, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None) -> None:
        owner = _OWNER.get() if context is None else context.get(_OWNER)
        self.owner: Instance | None = owner
        self.context = _context_of(owner) if context is None else context
        self.callback = callback
        self.arguments = arguments
        self.is_cancelled = False

    def cancel(self) -> None:
        """See ``asyncio.Handle``."""
        self.is_cancelled = True


class VirtualLoop:
    """As much of a loop as tasks, futures, queues, timers and ``to_thread`` need."""

    def __init__(self) -> None:
        self.ready: deque[Handle] = deque()
        self.asyncio = cast(asyncio.AbstractEventLoop, self)
        """What asyncio takes it for."""
        self.events = 0
        """Callbacks run so far."""
        self.is_stopped = False
        """Whether the simulation is over."""
        self._timers: list[tuple[float, int, Handle]] = []
        self._now_s = 0.0
        self._count = 0
        self.errors: list[BaseException] = []
        """Errors that no process may have: the simulation ends with them."""

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def run(self, *, limit_s: float, events_max: int) -> None:
        """Run until ``is_stopped``, or the time or the number of callbacks is used up, or nothing is left to do."""
        asyncio._set_running_loop(self.asyncio)
        ready, timers = self.ready, self._timers
        try:
            while not self.is_stopped and self.events < events_max and not self.errors:
                if ready:
                    handle = ready.popleft()
                elif not timers or timers[0][0] > limit_s:
                    return
                else:
                    self._now_s, _, handle = heapq.heappop(timers)
                self.events += 1
                owner = handle.owner
                if handle.is_cancelled or (owner is not None and not owner.alive):
                    continue
                if owner is not None and owner.frozen:
                    owner.keep(handle)
                else:
                    handle.context.run(handle.callback, *handle.arguments)
        finally:
            asyncio._set_running_loop(None)

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        """``call_later`` for what belongs to no process."""
        self._add_timer(self._now_s + delay_s, Handle(callback, arguments, NO_PROCESS))

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        """See ``AbstractEventLoop``."""
        handle = Handle(callback, args, context)
        self.ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """See ``AbstractEventLoop``."""
        return self._add_timer(self._now_s + delay, Handle(callback, args, context))

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        """See ``AbstractEventLoop``."""
        return self._add_timer(when, Handle(callback, args, context))

    def _add_timer(self, when_s: float, handle: Handle) -> Handle:
        self._count += 1
        heapq.heappush(self._timers, (when_s if when_s > self._now_s else self._now_s, self._count, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """See ``AbstractEventLoop``."""
        return asyncio.Future(loop=self.asyncio)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        """See ``AbstractEventLoop``."""
        return asyncio.Task(
            coro, loop=self.asyncio, name=name, context=_context_of(_OWNER.get()) if context is None else context
        )

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """A thread is a moment in which it is done."""
        future = self.create_future()
        try:
            result = func(*args)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def is_running(self) -> bool:
        """See ``AbstractEventLoop``."""
        return True

    def is_closed(self) -> bool:
        """See ``AbstractEventLoop``."""
        return False

    def get_debug(self) -> bool:
        """See ``AbstractEventLoop``."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tasks of dead processes are found by the garbage collector at any moment: what they died of is no news.

        Errors that matter are caught where a process' main coroutine is started, and put into ``errors`` there.
        """


def _context_of(owner: Instance | None) -> Context:
    """The context of a process. Shared, not copied: the code that runs here sets no context variables."""
    return NO_PROCESS if owner is None else owner.context
