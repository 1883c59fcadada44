"""The watchdog: ends the process when a batch has been in the code of the model file for too long.

It can't run while native code holds Python's lock for ever. Then no heartbeat is sent either, and the master replaces
the process for that.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.exit_codes import EXIT_HUNG
from elasticdl.shared.process.logs import get_logger
from elasticdl.worker.core.batch_clock import Activity, BatchClock
from elasticdl.worker.model.user.calls import is_users
from elasticdl.worker.running_batches import RunningBatches

FRAMES_MAX = 5
"""Frames of the user's files in a message: the innermost ones."""
LINE_CHARS_MAX = 200
EXPLAIN_S = 5.0
"""Seconds for writing the stacks. The stuck code may hold the lock of a stream."""
_log = get_logger()


class Watchdog:
    """Watches the activities of a process.

    Args:
        deadline_s: seconds that one batch may take; 0: any time.
        folder: of the model file; files in it are the user's.
    """

    def __init__(
        self,
        running: RunningBatches,
        *,
        deadline_s: float,
        folder: Path,
        say: Callable[[BatchSlow], None],
        clock: Clock,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        self._running = running
        self._deadline_s = deadline_s
        self._folder = folder
        self._say = say
        self._now = clock
        self._end = end
        self._clock = BatchClock(deadline_s)
        self._stopping = threading.Event()

    def start(self) -> None:
        """Watch from now on, on a thread of its own."""
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopping.set()

    def look(self) -> None:
        """Look once: publish what is slow, and end the process if something is overdue."""
        tick = self._clock.tick(self._now.monotonic(), self._running.activities)
        if tick.overdue:
            self._running.accuse(tick.overdue)
            explaining = threading.Thread(target=self._explain, args=(tick.overdue,), daemon=True)
            explaining.start()
            explaining.join(EXPLAIN_S)
            self._end(EXIT_HUNG)
            return
        for activity in tick.continued:
            self._say(_event(activity, 0.0))
        for activity, seconds in tick.slow:
            self._say(_event(activity, seconds))

    def _watch(self) -> None:
        while not self._stopping.wait(self._clock.tick_s):
            self.look()

    def _explain(self, overdue: Sequence[Activity]) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr, all_threads=True)
        stuck = overdue[0]
        what = f"no progress within the batch deadline of {self._deadline_s:g} s"
        if stuck.batch is None:
            what = f"no progress within {self._clock.limit_s(stuck):g} s"
        elif stuck.is_first:
            what += ", with the time to compile the model,"
        place = stack_text(sys._current_frames(), stuck.thread, self._folder)
        _log.error(f"{what} while {stuck}\n{place}".rstrip())


def stack_text(frames: Mapping[int, FrameType], thread: int, folder: Path) -> str:
    """Where a thread is, by the innermost frames of the user's files, and the very innermost frame, as Python shows it.

    Args:
        frames: thread -> its innermost frame.
        thread: the stuck thread. If it runs no code of the user, another thread that does is shown in its place:
            TensorFlow calls Python functions of a compiled step on threads of its own.
    """
    others = [each for each in frames if each not in (thread, threading.get_ident())]
    stacks = [traceback.extract_stack(frames[each]) for each in (thread, *others) if each in frames]
    shown: list[traceback.FrameSummary] = []
    for stack in stacks:
        own = [number for number, frame in enumerate(stack) if is_users(Path(frame.filename), folder)]
        if own:
            last = len(stack) - 1
            shown = [stack[number] for number in sorted({*own[-FRAMES_MAX:], last})]
            break
    if not shown and stacks:
        shown = stacks[0][-FRAMES_MAX:]
    lines = "".join(traceback.format_list(shown)).rstrip().splitlines()
    return "\n".join(line[:LINE_CHARS_MAX] for line in lines)


def _event(activity: Activity, seconds: float) -> BatchSlow:
    batch = activity.batch
    assert batch is not None  # Nothing else is called slow.
    return BatchSlow(task=batch.task, batch=batch.batch, work=str(activity), seconds=round(seconds, 1))
