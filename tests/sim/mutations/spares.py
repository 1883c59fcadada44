"""Mutations of how spare workers take the places of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.shared.messages.commands import Command, PromoteWorker
from elasticdl.worker.promotion import Promotion


@mutation(
    "an order to take part is for one process, not for a later one of its name",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-promoted-spare-dies-before-its-order-arrives",
)
def promotions_are_for_one_process() -> Iterator[None]:
    original = Promotion.take_order

    async def take_order(self: Promotion, command: Command, cause: str) -> None:
        if isinstance(command, PromoteWorker):
            command = replace(command, incarnation=self._incarnation)
        await original(self, command, cause)

    with replaced(Promotion, "take_order", take_order):
        yield
