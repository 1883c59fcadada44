"""The watchdog ends a process whose user code hangs, and says where."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.exit_codes import EXIT_HUNG
from elasticdl.shared.process.running_batches import RunningBatchesFile, WorkerTraces
from elasticdl.worker.core.batch_clock import Work
from elasticdl.worker.running_batches import RunningBatches, waiting
from elasticdl.worker.watchdog import FRAMES_MAX, Watchdog, stack_text

TASK = TaskRef(purpose=Purpose.TRAIN, number=4)
MODEL = """
import threading

def feed(begun, released):
    one(begun, released, 3)

def one(begun, released, depth):
    other(begun, released, depth)

def other(begun, released, depth):
    if depth:
        return one(begun, released, depth - 1)
    begun.set()
    released.wait()
"""


@dataclass
class ManualClock:
    now_s: float = 0.0

    def now(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s


@dataclass
class Process:
    """A worker's process as the watchdog sees it."""

    folder: Path
    file: RunningBatchesFile
    clock: ManualClock = field(default_factory=ManualClock)
    said: list[BatchSlow] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.running = RunningBatches(self.file)
        self.watchdog = Watchdog(
            self.running,
            deadline_s=10.0,
            folder=self.folder,
            say=self.said.append,
            clock=self.clock,
            end=self.ends.append,
        )

    @property
    def recorded(self) -> tuple[RunningBatch, ...]:
        return WorkerTraces.read(self.folder / "batches").running_batches

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now_s += 1.0
            self.watchdog.look()


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    with RunningBatchesFile(tmp_path / "batches") as file:
        yield Process(tmp_path, file)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[threading.Thread]:
    """A thread that hangs in the user's code."""
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    scope: dict[str, object] = {}
    exec(compile(MODEL, str(path), "exec"), scope)
    begun, released = threading.Event(), threading.Event()
    thread = threading.Thread(target=scope["feed"], args=(begun, released))  # type: ignore[arg-type]
    thread.start()
    begun.wait()
    yield thread
    released.set()
    thread.join()


def test_an_overdue_batch_ends_the_process_and_is_the_only_one_that_is_accused(process: Process) -> None:
    with process.running.running(TASK, 7, Work.READ):
        process.pass_seconds(6)
        with process.running.running(TASK, 6, Work.EVALUATE):
            process.pass_seconds(4)
            assert process.ends == []
            process.pass_seconds(1)
            assert process.ends == [EXIT_HUNG]
            assert process.recorded == (RunningBatch(task=TASK, batch=7),)


def test_a_start_that_makes_no_progress_ends_the_process_and_accuses_no_batch(process: Process) -> None:
    with process.running.starting(100.0):
        process.pass_seconds(30)
        process.running.step()
        process.pass_seconds(30)
        assert (process.ends, process.said) == ([], [])
        process.pass_seconds(1)
        assert process.ends == [EXIT_HUNG]
        assert process.recorded == ()


def test_a_start_takes_at_most_its_own_limit_and_its_first_batch_no_more_than_a_batch(process: Process) -> None:
    with process.running.starting(20.0):
        process.pass_seconds(20)
        with process.running.running(TASK, 7, Work.READ):
            process.pass_seconds(10)
            assert process.ends == []
            process.pass_seconds(1)
            assert process.ends == [EXIT_HUNG]
            assert process.recorded == (RunningBatch(task=TASK, batch=7),)
        process.ends.clear()
        process.pass_seconds(20)
        assert process.ends == []
        process.pass_seconds(1)
        assert process.ends == [EXIT_HUNG]


def test_the_stack_of_a_start_that_hangs_is_logged(
    process: Process, stuck: threading.Thread, capfd: pytest.CaptureFixture[str]
) -> None:
    with process.running.starting(20.0):
        process.pass_seconds(22)
    assert process.ends
    logged = "".join(capfd.readouterr())
    said = "no progress within 20 s while loading the model file and building the model"
    assert said in logged
    assert "released.wait()" in logged


def test_a_slow_batch_is_published_and_so_is_its_end(process: Process) -> None:
    with process.running.running(TASK, 7, Work.READ):
        process.pass_seconds(8)
    process.pass_seconds(1)
    work = "reading and feeding batch 7 of task train 4"
    assert process.said == [
        BatchSlow(task=TASK, batch=7, work=work, seconds=5.0),
        BatchSlow(task=TASK, batch=7, work=work, seconds=0.0),
    ]


def test_only_the_first_batch_of_a_process_is_compiled(process: Process) -> None:
    with process.running.running(TASK, 0, Work.TRAIN) as first:
        assert first.is_first
    with process.running.running(TASK, 1, Work.TRAIN) as second:
        assert not second.is_first
    with process.running.running(TASK, 1, Work.READ) as read:
        assert not read.is_first, "a feed is not compiled"


def test_waiting_for_a_ps_in_an_export_is_not_hanging(process: Process) -> None:
    with process.running.running(TASK, 0, Work.EXPORT), process.running.waiting():
        process.pass_seconds(50)
    assert process.ends == []


def test_a_thread_of_tensorflow_may_say_that_a_step_waits_for_its_round(process: Process) -> None:
    with process.running.running(TASK, 1, Work.EVALUATE) as activity:

        def exchange() -> None:
            with waiting(activity):
                process.pass_seconds(100)

        thread = threading.Thread(target=exchange)
        thread.start()
        thread.join()
    assert process.ends == []


def test_parts_of_an_export_are_progress(process: Process) -> None:
    with process.running.running(TASK, 0, Work.EXPORT):
        for _ in range(10):
            process.pass_seconds(5)
            process.running.step()
    assert process.ends == []


def test_a_stack_shows_the_innermost_frames_of_the_user_and_where_they_are_stuck(
    stuck: threading.Thread, tmp_path: Path
) -> None:
    assert stuck.ident
    text = stack_text(sys._current_frames(), stuck.ident, tmp_path)
    assert text.count("model.py") == FRAMES_MAX
    assert "in other\n    released.wait()" in text
    assert text.splitlines()[-2].strip().startswith('File "') and "threading.py" in text.splitlines()[-2]


def test_user_code_on_a_thread_of_tensorflow_is_found(stuck: threading.Thread, tmp_path: Path) -> None:
    main = threading.get_ident()
    assert stuck.ident
    frames: dict[int, FrameType] = {main + 1: sys._getframe(), stuck.ident: sys._current_frames()[stuck.ident]}
    assert "model.py" in stack_text(frames, main + 1, tmp_path)
