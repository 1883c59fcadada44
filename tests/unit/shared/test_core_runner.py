from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence

from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.core_runner import CoreRunner, Lanes, LoopLanes, SetTimer, TimerFired

WAIT_S = 20.0


class Relay:
    """Sends each word to the lane that it names, and tells what came back."""

    def __init__(self) -> None:
        self.seen: queue.SimpleQueue[object] = queue.SimpleQueue()

    def handle(self, event: object, now_s: float) -> Sequence[object]:
        self.seen.put(event)
        match event:
            case ("go", *commands):
                return commands
            case "timer":
                return [SetTimer(name="t", due_s=now_s + 60.0), SetTimer(name="t", due_s=now_s)]
            case "break":
                raise ValueError("core")
        return []


def run(command: object) -> object:
    if command == "a:raise":
        raise ValueError("lane")
    if command == "b:go":
        return "go", "a:1", "a:2"
    return (command, threading.current_thread().name)


def runner(
    core: Relay, failures: queue.SimpleQueue[BaseException], execute: Callable[[object], object] = run
) -> CoreRunner[object, object]:
    return CoreRunner(
        core,
        execute=execute,
        lanes=Lanes(
            threads=("a", "b"),
            of=lambda command: str(command).partition(":")[0],
            own="main",
            borrowed_after=lambda command: "a" if command == "b:go" else "",
            borrowed_max=3,
        ),
        clock=SystemClock(),
        failed=failures.put,
    )


def test_each_lane_executes_its_commands_in_order_in_a_thread_of_its_own() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    running = runner(core, failures)
    running.start()
    running.post(("go", "a:1", "b:1", "a:2"))
    outcomes = [core.seen.get(timeout=WAIT_S) for _ in range(4)][1:]
    assert [each for each in outcomes if each[1] == "a"] == [("a:1", "a"), ("a:2", "a")]  # type: ignore[index]
    assert ("b:1", "b") in outcomes
    running.stop()
    assert running.join(WAIT_S)


def test_the_calling_thread_serves_its_own_lane_until_it_is_stopped() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    running = runner(core, failures)
    running.start()
    running.post(("go", "main:1"))

    def stop_after_the_outcome() -> None:
        core.seen.get(timeout=WAIT_S)
        core.seen.get(timeout=WAIT_S)
        running.stop()

    threading.Thread(target=stop_after_the_outcome).start()
    running.run()
    assert running.join(WAIT_S)
    assert failures.empty()


def test_a_thread_borrows_an_idle_lane_for_the_first_commands_of_its_event() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    running = runner(core, failures)
    running.start()
    own = threading.current_thread().name
    for _ in range(3):
        running.post(("go", "a:1", "b:1", "a:2", "a:3", "a:4"), borrows="a")
        outcomes = [each for each in (core.seen.get(timeout=WAIT_S) for _ in range(6)) if each != ("b:1", "b")]
        assert outcomes[1:] == [("a:1", own), ("a:2", own), ("a:3", own), ("a:4", "a")]
        while running._lanes["a"].unfinished:
            threading.Event().wait(0.001)
    running.stop()
    assert running.join(WAIT_S)


def test_a_lane_borrows_another_one_for_what_follows_from_its_command() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    running = runner(core, failures)
    running.start()
    running.post(("go", "b:go"))
    assert [core.seen.get(timeout=WAIT_S) for _ in range(4)][2:] == [("a:1", "b"), ("a:2", "b")]
    running.post(("go", "a:3"))
    assert [core.seen.get(timeout=WAIT_S) for _ in range(2)][1] == ("a:3", "a")
    running.stop()
    assert running.join(WAIT_S)
    assert failures.empty()


def test_a_busy_lane_is_not_borrowed_and_keeps_its_order() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    began, may_end = threading.Event(), threading.Event()

    def execute(command: object) -> object:
        if command == "a:1":
            began.set()
            assert may_end.wait(WAIT_S)
        return command, threading.current_thread().name

    running = runner(core, failures, execute)
    running.start()
    running.post(("go", "a:1"))
    assert began.wait(WAIT_S)
    running.post(("go", "a:2"), borrows="a")
    may_end.set()
    assert [core.seen.get(timeout=WAIT_S) for _ in range(4)][2:] == [("a:1", "a"), ("a:2", "a")]
    running.stop()
    assert running.join(WAIT_S)
    assert failures.empty()


def test_a_lane_executes_nothing_after_an_error_of_its_borrower() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    running = runner(core, failures)
    running.start()
    running.post(("go", "a:raise", "a:1"), borrows="a")
    assert str(failures.get(timeout=WAIT_S)) == "lane"
    running.post(("go", "a:2", "b:1"))
    assert [core.seen.get(timeout=WAIT_S) for _ in range(3)][2] == ("b:1", "b")
    running.stop()
    assert running.join(WAIT_S)
    assert core.seen.empty()


def test_the_end_of_a_runner_waits_for_the_borrower_of_a_lane() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    began, may_end = threading.Event(), threading.Event()

    def execute(command: object) -> object:
        began.set()
        assert may_end.wait(WAIT_S)
        return command, threading.current_thread().name

    running = runner(core, failures, execute)
    running.start()
    borrower = threading.Thread(
        target=running.post, args=(("go", "a:1", "a:2"),), kwargs={"borrows": "a"}, name="other"
    )
    borrower.start()
    assert began.wait(WAIT_S)
    running.stop()
    assert not running.join(0.0)
    may_end.set()
    assert running.join(WAIT_S)
    assert [core.seen.get(timeout=WAIT_S) for _ in range(2)][1] == ("a:1", "other")
    borrower.join(WAIT_S)
    assert core.seen.empty()


def test_a_timer_that_is_set_again_fires_once() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    running = runner(core, failures)
    running.start()
    running.post("timer")
    assert core.seen.get(timeout=WAIT_S) == "timer"
    assert isinstance(core.seen.get(timeout=WAIT_S), TimerFired)
    running.stop()
    assert running.join(WAIT_S)
    assert core.seen.empty()


def test_errors_of_core_and_lanes_are_reported() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    running = runner(core, failures)
    running.start()
    running.post("break")
    assert str(failures.get(timeout=WAIT_S)) == "core"
    running.post(("go", "a:raise"))
    assert str(failures.get(timeout=WAIT_S)) == "lane"
    running.stop()
    assert running.join(WAIT_S)


def test_lanes_on_a_loop_keep_their_order_and_overlap_with_each_other() -> None:
    core, failures = Relay(), queue.SimpleQueue[BaseException]()
    loop, opened = LoopThread(), asyncio.Event()

    async def execute(command: str) -> str | None:
        if command == "a:wait":
            await opened.wait()
        elif command == "b:open":
            opened.set()
        elif command == "b:raise":
            raise ValueError("lane")
        return None if command == "b:open" else command

    running: CoreRunner[object, object] = CoreRunner(
        core,
        execute=lambda _: None,
        lanes=Lanes(
            threads=(),
            of=lambda command: str(command).partition(":")[0],
            on_loop=LoopLanes(names=("a", "b"), execute=execute, call_soon=loop.call_soon),  # type: ignore[arg-type]
        ),
        clock=SystemClock(),
        failed=failures.put,
    )
    running.start()
    running.post(("go", "a:wait", "a:2", "b:open", "a:3"))
    assert [core.seen.get(timeout=WAIT_S) for _ in range(4)][1:] == ["a:wait", "a:2", "a:3"]
    running.post(("go", "a:4"))
    assert [core.seen.get(timeout=WAIT_S) for _ in range(2)][1:] == ["a:4"]
    running.post(("go", "b:raise"))
    assert str(failures.get(timeout=WAIT_S)) == "lane"
    running.stop()
    assert running.join(WAIT_S)
    loop.stop()
