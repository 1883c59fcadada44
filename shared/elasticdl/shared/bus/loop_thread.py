"""An asyncio loop in a thread of its own, for services whose main threads block on sockets and kernels."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from elasticdl.shared.errors import TransientError
from elasticdl.shared.process.logs import get_logger

T = TypeVar("T")

_log = get_logger()


class LoopThread:
    """Runs coroutines for other threads; a daemon thread, so it never keeps a process alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine and wait for its result; cancelled after ``timeout_s`` seconds (None: no limit)."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            if future.done():
                raise  # the coroutine's own timeout
            future.cancel()
            raise TransientError(f"no result within {timeout_s} s") from error

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the background; its error, if any, is logged."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._tasks.add(future)
        future.add_done_callback(self._forget)
        return future

    def spawn_endless(
        self, coroutine: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]
    ) -> Future[None]:
        """Run a coroutine in the background that the process can't do without.

        Args:
            coroutine: ends only when it is cancelled, or with an error.
            failed: takes the error that ended it. To return is an error, too.
        """

        async def run() -> None:
            try:
                await coroutine
                raise TransientError("the connection to NATS is closed")
            except Exception as error:  # The outermost frame: without it the process would go on and hear nothing.
                failed(error)

        return self.spawn(run())

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function on the loop; any thread may call. On the loop's own thread this needs no wake-up."""
        is_own = threading.current_thread() is self._thread
        (self._loop.call_soon if is_own else self._loop.call_soon_threadsafe)(function)

    def stop(self) -> None:
        """Cancel what was spawned, end the loop and the thread."""
        for future in list(self._tasks):
            future.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _forget(self, future: Future[Any]) -> None:
        self._tasks.discard(future)
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("background task failed", reason=f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            pending = asyncio.all_tasks(self._loop)
            for task in pending:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


__all__ = ["CancelledError", "LoopThread"]
