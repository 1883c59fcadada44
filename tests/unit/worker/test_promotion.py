"""The order that lets a worker take part which has built the model."""

from __future__ import annotations

import pytest

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.commands import Command, OpenPin, PromoteWorker
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.worker.promotion import Promotion

WORKER = PodName("worker-2")


def order(incarnation: str) -> PromoteWorker:
    return PromoteWorker(worker=WORKER, incarnation=Incarnation(incarnation), replaces=PodName("worker-0"))


@pytest.fixture
def begun() -> list[str]:
    return []


@pytest.fixture
def promotion(begun: list[str]) -> Promotion:
    async def begin() -> None:
        begun.append("begun")

    return Promotion(Incarnation("mine"), begin)


async def test_a_repeated_order_is_obeyed_once(promotion: Promotion, begun: list[str]) -> None:
    for _ in range(2):
        await promotion.take_order(order("mine"), "1")
    assert begun == ["begun"]


@pytest.mark.parametrize("command", [order("former"), OpenPin(ps=PodName("ps-0"), evaluation=1)])
async def test_an_order_that_is_not_for_this_process_is_refused(
    promotion: Promotion, begun: list[str], command: Command
) -> None:
    with pytest.raises(PermanentError, match="this process is mine"):
        await promotion.take_order(command, "1")
    assert begun == []
