"""Runs a decision core in a process: threads execute its commands and report their outcomes as events.

    event -> core.handle(event, now) -> commands -> lanes -> events ...

A lane executes its commands one after the other, so commands of the same lane never overlap and keep their order. It is
a thread, or a queue of coroutines on an asyncio loop: then neither the command nor its outcome has to wake a thread.
The core decides what may overlap by choosing lanes; the runner decides nothing. The simulator has a
runner of its own with coroutines as lanes on a virtual clock.
"""

from __future__ import annotations

import asyncio
import heapq
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from elasticdl.shared.process.clock import Clock

E = TypeVar("E")
C = TypeVar("C")
E_contra = TypeVar("E_contra", contravariant=True)
C_co = TypeVar("C_co", covariant=True)


class Core(Protocol[E_contra, C_co]):
    """A decision core: no I/O, no clock, no threads."""

    def handle(self, event: E_contra, now_s: float) -> Sequence[C_co]:
        """Take one event and decide; ``now_s`` is monotonic time in seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Command: deliver ``TimerFired`` at a monotonic time, in place of a timer of the same name."""

    name: str
    due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """Event: a timer is due, since ``due_s`` (monotonic)."""

    name: str
    due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLanes(Generic[E, C]):
    """The lanes of a runner that are on an asyncio loop.

    Attributes:
        execute: executes a command; returns the event with the outcome, or None.
        call_soon: calls a function on the loop; any thread may call it.
    """

    names: Sequence[str]
    execute: Callable[[C], Awaitable[E | None]]
    call_soon: Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes(Generic[E, C]):
    """The lanes of a runner.

    Attributes:
        threads: names of the lanes that get a thread of their own.
        of: the lane of a command; ``SetTimer`` needs none.
        own: name of the lane that ``run`` serves, in the thread that calls it; empty: none.
        on_loop: the lanes on an asyncio loop; None: none.
        borrowed_after: the lane that the thread which has executed a command borrows, if it is idle, for what follows
            from the outcome; empty: none. See ``CoreRunner.post``.
        borrowed_max: commands that a borrower of a lane executes: one, and those that follow from it.
    """

    threads: Sequence[str]
    of: Callable[[C], str]
    own: str = ""
    on_loop: LoopLanes[E, C] | None = None
    borrowed_after: Callable[[C], str] = lambda _command: ""
    borrowed_max: int = 2


class _Thread(Generic[C]):
    """A lane with a thread, which another thread can borrow while it is idle. The runner's lock guards it."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[C | None] = queue.SimpleQueue()
        self.unfinished = 0
        """Commands for the thread that it has not executed."""
        self.borrowed: deque[C] | None = None
        """Commands for the borrower; None: there is none."""
        self.turn = threading.Lock()
        """The borrower has it."""

    def put(self, command: C) -> None:
        if self.borrowed is not None:
            self.borrowed.append(command)
        else:
            self.unfinished += 1
            self.queue.put(command)

    def borrow(self) -> bool:
        if self.unfinished or self.borrowed is not None:
            return False
        self.turn.acquire()
        self.borrowed = deque()
        return True

    def give_back(self) -> None:
        left, self.borrowed = self.borrowed or (), None
        for command in left:
            self.put(command)
        self.turn.release()


class CoreRunner(Generic[E, C]):
    """Calls the core with one event at a time and hands its commands to lanes.

    Args:
        execute: executes a command in the thread of its lane; returns the event with the outcome, or None. Not called
            for lanes on a loop.
        failed: called once with an error that no event reports: a defect, or one that ends the process.
    """

    def __init__(
        self,
        core: Core[E | TimerFired, C | SetTimer],
        *,
        execute: Callable[[C], E | None],
        lanes: Lanes[E, C],
        clock: Clock,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._execute = execute
        self._clock = clock
        self._failed = failed
        self._lock = threading.RLock()
        self._lane_of, self._own_lane = lanes.of, lanes.own
        self._borrowed_after, self._borrowed_max = lanes.borrowed_after, lanes.borrowed_max
        names = (*lanes.threads, lanes.own)
        self._lanes: dict[str, _Thread[C]] = {name: _Thread() for name in names}
        self._put: dict[str, Callable[[C], None]] = {name: lane.put for name, lane in self._lanes.items()}
        if lanes.on_loop is not None:
            self._put |= {name: self._loop_lane(lanes.on_loop) for name in lanes.on_loop.names}
        self._timers: dict[str, float] = {}
        self._due: list[tuple[float, str]] = []
        self._timers_changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._serve, args=(name,), name=name, daemon=True) for name in lanes.threads
        ]
        self._threads.append(threading.Thread(target=self._fire_timers, name="timers", daemon=True))

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def post(self, event: E | TimerFired, *, borrows: str = "") -> None:
        """Give the core an event; any thread may call, a core's own commands included.

        Args:
            borrows: a lane with a thread. If it is idle, the calling thread executes the first commands that the event
                leads to in it, so that no other thread has to wake up. The caller must have nothing to do meanwhile.
        """
        lane = self._lanes[borrows] if borrows else None
        try:
            with self._lock:
                if lane is not None and not lane.borrow():
                    lane = None
                for command in self._core.handle(event, self._clock.monotonic()):
                    if isinstance(command, SetTimer):
                        self._set_timer(command)
                    else:
                        self._put[self._lane_of(command)](command)
        except BaseException as error:  # A defect, or the core's way to end the process.
            self._failed(error)
        if lane is not None:
            self._serve_borrowed(lane)

    def run(self) -> None:
        """Serve the lane of the calling thread until ``stop``."""
        self._serve(self._own_lane)

    def stop(self) -> None:
        """Let every lane finish the command it executes, and end; commands that wait are dropped."""
        with self._timers_changed:
            self._stopping = True
            self._timers_changed.notify()
        for lane in self._lanes.values():
            lane.queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the threads after ``stop``, and for borrowers of their lanes; whether all of them have ended."""
        give_up_s = self._clock.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, give_up_s - self._clock.monotonic()))
        for lane in self._lanes.values():
            if not lane.turn.acquire(timeout=max(0.0, give_up_s - self._clock.monotonic())):
                return False
            lane.turn.release()
        return not any(thread.is_alive() for thread in self._threads if thread is not threading.current_thread())

    def _serve(self, name: str) -> None:
        lane = self._lanes[name]
        while (command := lane.queue.get()) is not None and not self._stopping:
            if not self._run(command):
                return
            with self._lock:
                lane.unfinished -= 1

    def _serve_borrowed(self, lane: _Thread[C]) -> None:
        """Others may put further commands into the lane meanwhile; those are for its thread."""
        for _ in range(self._borrowed_max):
            with self._lock:
                command = lane.borrowed.popleft() if lane.borrowed and not self._stopping else None
            if command is None:
                break
            if not self._run(command):
                lane.turn.release()  # It stays borrowed: as after an error in its thread, it executes nothing more.
                return
        with self._lock:
            lane.give_back()

    def _run(self, command: C) -> bool:
        """Execute a command and report its outcome; whether that did not fail."""
        try:
            event = self._execute(command)
        except BaseException as error:  # The lane's outermost frame.
            self._failed(error)
            return False
        if event is not None:
            self.post(event, borrows=self._borrowed_after(command))
        return True

    def _loop_lane(self, lanes: LoopLanes[E, C]) -> Callable[[C], None]:
        """What puts a command into a new lane on the loop; any thread may call it that holds the lock."""
        waiting: deque[C] = deque()
        serving: set[asyncio.Task[None]] = set()
        is_awake = False

        async def serve() -> None:
            nonlocal is_awake
            while not self._stopping:
                with self._lock:
                    if not waiting:
                        is_awake = False
                        serving.clear()
                        return
                try:
                    event = await lanes.execute(waiting.popleft())
                except Exception as error:  # The lane's outermost frame.
                    self._failed(error)
                    return
                if event is not None:
                    self.post(event)

        def put(command: C) -> None:
            nonlocal is_awake
            waiting.append(command)
            if not is_awake:
                is_awake = True
                lanes.call_soon(lambda: serving.add(asyncio.get_running_loop().create_task(serve())))

        return put

    def _set_timer(self, timer: SetTimer) -> None:
        with self._timers_changed:
            self._timers[timer.name] = timer.due_s
            heapq.heappush(self._due, (timer.due_s, timer.name))
            self._timers_changed.notify()

    def _fire_timers(self) -> None:
        while True:
            with self._timers_changed:
                if self._stopping:
                    return
                if not self._due or self._due[0][0] > self._clock.monotonic():
                    wait_s = self._due[0][0] - self._clock.monotonic() if self._due else None
                    self._timers_changed.wait(wait_s)
                    continue
                due_s, name = heapq.heappop(self._due)
                if self._timers.get(name) != due_s:
                    continue  # It was set again.
                del self._timers[name]
            self.post(TimerFired(name=name, due_s=due_s))
