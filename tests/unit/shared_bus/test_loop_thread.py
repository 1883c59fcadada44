from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.errors import TransientError


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


async def the_answer() -> int:
    return 42


async def forever() -> None:
    await asyncio.Event().wait()


def test_results_come_back_from_another_thread(loop: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert loop.call(the_answer()) == 42
    assert loop.call(where()) == "bus"


def test_errors_come_back(loop: LoopThread) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        loop.call(fail())


def test_a_call_that_takes_too_long_is_cancelled(loop: LoopThread) -> None:
    cancelled = threading.Event()

    async def hang() -> None:
        try:
            await forever()
        finally:
            cancelled.set()

    with pytest.raises(TransientError, match="no result"):
        loop.call(hang(), timeout_s=0.01)
    assert cancelled.wait(DEADLINE_S)


def test_a_coroutines_own_timeout_is_passed_on(loop: LoopThread) -> None:
    async def impatient() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        loop.call(impatient(), timeout_s=DEADLINE_S)


@pytest.mark.parametrize("error", [None, TransientError("the broker is away"), KeyError("a defect")])
def test_the_end_of_work_that_the_process_needs_is_reported(loop: LoopThread, error: Exception | None) -> None:
    reported: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    async def work() -> None:
        if error:
            raise error

    loop.spawn_endless(work(), reported.put)
    found = reported.get(timeout=DEADLINE_S)
    assert found is error or (error is None and str(found) == "the connection to NATS is closed")


def test_work_that_is_cancelled_has_not_failed(loop: LoopThread) -> None:
    reported: list[BaseException] = []
    work = loop.spawn_endless(forever(), reported.append)
    work.cancel()
    assert loop.call(the_answer()) == 42 and work.cancelled()
    assert reported == []


def test_background_work_ends_with_the_thread() -> None:
    loop, ended = LoopThread(), threading.Event()
    begun = threading.Event()

    async def work() -> None:
        try:
            begun.set()
            await forever()
        finally:
            ended.set()

    future = loop.spawn(work())
    assert begun.wait(DEADLINE_S)
    loop.stop()
    assert ended.is_set()
    assert future.cancelled()
