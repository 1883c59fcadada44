"""Workers of jobs with spare workers: each has built the model, and waits until the master promotes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.commands import Command, PromoteWorker
from elasticdl.shared.names import Incarnation


class Promotion:
    """Obeys the master's order to take part, which may come several times.

    Args:
        begin: takes part; it is called until it succeeds.
    """

    def __init__(self, incarnation: Incarnation, begin: Callable[[], Awaitable[None]]) -> None:
        self._incarnation = incarnation
        self._begin = begin
        self._is_promoted = False

    async def take_order(self, command: Command, _cause: str) -> None:
        """See ``Signals.serve_orders``.

        Raises:
            PermanentError: the order is not for this process. A former one under its name may have died before it came.
        """
        if not isinstance(command, PromoteWorker) or command.incarnation != self._incarnation:
            raise PermanentError(f"this process is {self._incarnation}, and the order is {command}")
        if not self._is_promoted:
            self._is_promoted = True
            try:
                await self._begin()
            except BaseException:
                self._is_promoted = False
                raise
