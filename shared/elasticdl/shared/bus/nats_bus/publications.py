"""Publishes several messages to streams at once, over one subscription for their acknowledgements."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A message for a stream; ``headers``: among them its message id."""

    subject: str
    payload: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Group:
    """Messages that were published together.

    Attributes:
        missing: number -> message; those that are not stored as far as is known.
        unanswered: how many have no answer yet.
    """

    missing: dict[int, Publication]
    unanswered: int
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Publisher:
    """Publishes messages without waiting for the acknowledgement of each."""

    def __init__(self, client: Client, answer_s: float) -> None:
        self._client = client
        self._answer_s = answer_s
        self._inbox = ""
        self._numbers = itertools.count(1)
        self._groups: dict[int, _Group] = {}

    async def publish(self, messages: Sequence[Publication]) -> list[Publication]:
        """Publish messages; those that are not acknowledged, in their order."""
        numbered = {next(self._numbers): message for message in messages}
        group = _Group(dict(numbered), len(numbered))
        self._groups |= dict.fromkeys(numbered, group)
        try:
            with suppress(nats.errors.Error, OSError, TimeoutError):
                if not self._inbox:
                    await self._subscribe()
                for number, one in numbered.items():
                    await self._client.publish(one.subject, one.payload, f"{self._inbox}.{number}", dict(one.headers))
                await asyncio.wait_for(group.answered.wait(), self._answer_s)
        finally:
            for number in numbered:
                self._groups.pop(number, None)
        return list(group.missing.values())

    async def _subscribe(self) -> None:
        inbox = self._client.new_inbox()
        await self._client.subscribe(f"{inbox}.*", cb=self._on_answer)
        self._inbox = inbox

    async def _on_answer(self, answer: Msg) -> None:
        number = int(answer.subject.rpartition(".")[2])
        group = self._groups.pop(number, None)
        if group is None:
            return  # It came too late.
        if b'"seq":' in answer.data and b'"error":' not in answer.data:
            del group.missing[number]
        group.unanswered -= 1
        if not group.unanswered:
            group.answered.set()
