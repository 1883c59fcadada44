"""Retries of requests to the broker, until it answers; every adapter uses these rules.

A repeated write may have been stored by an earlier try whose answer was lost. The broker recognises repetitions by the
message id. Where a writer names the last record that it knows, the broker checks that first and refuses the repetition;
the record that is stored there then tells who wrote it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from elasticdl.shared.errors import FencedError, PermanentError, TransientError
from elasticdl.shared.messages.events import Envelope, LogRecord
from elasticdl.shared.process.logs import get_logger

_log = get_logger()
T = TypeVar("T")


class WrongLastSequenceError(PermanentError):
    """The broker refuses a write: its writer does not know the last record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long and how often a request is repeated.

    Attributes:
        limit_s: seconds after which no further try begins.
        pause_s: seconds between two tries.
    """

    limit_s: float
    pause_s: float

    async def run(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it succeeds; ``attempt`` raises TransientError to be tried again, and must end by itself."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + self.limit_s
        while True:
            try:
                return await attempt()
            except TransientError as error:
                if loop.time() + self.pause_s > give_up_s:
                    raise TransientError(f"{what} failed for {self.limit_s:g} s: {error}") from error
            await asyncio.sleep(self.pause_s)


async def until_done(what: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat what fails for a while, such as ``write files``, until it succeeds, without limit."""
    while True:
        try:
            return await attempt()
        except TransientError as error:
            _log.warning(f"can't {what} yet", reason=str(error))
            await asyncio.sleep(error.retry_after_s)


async def append_once(
    envelope: Envelope,
    store: Callable[[], Awaitable[int]],
    stored: Callable[[], Awaitable[LogRecord | None]],
    refusal: Callable[[LogRecord | None], str],
) -> int:
    """Append a record that names its predecessor, and recognise an earlier try that was stored unanswered.

    Raises:
        FencedError: another writer was faster.
    """
    try:
        return await store()
    except WrongLastSequenceError as error:
        there = await stored()
        if there is not None and there.envelope.id == envelope.id:
            return there.seq
        raise FencedError(refusal(there)) from error
