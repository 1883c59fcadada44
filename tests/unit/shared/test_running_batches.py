"""The memory-mapped file with the batches that a worker was running when it crashed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.running_batches import BATCHES_MAX, RunningBatchesFile, WorkerTraces

NUMBERS = st.integers(min_value=0, max_value=2**64 - 1)


@given(purpose=st.sampled_from(Purpose), task=NUMBERS, batch=NUMBERS)
def test_a_running_batch_is_read(
    tmp_path_factory: pytest.TempPathFactory, purpose: Purpose, task: int, batch: int
) -> None:
    path = tmp_path_factory.mktemp("hand") / "hand"
    held = RunningBatch(task=TaskRef(purpose=purpose, number=task), batch=batch)
    with RunningBatchesFile(path) as file:
        with file.running(held.task, held.batch):
            assert WorkerTraces.read(path).running_batches == (held,)
        assert WorkerTraces.read(path).running_batches == ()


def test_several_batches_start_and_end_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "hand"
    one, two = (RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=7), batch=batch) for batch in (3, 4))
    with RunningBatchesFile(path) as file:
        first, second = file.running(one.task, one.batch), file.running(two.task, two.batch)
        with first:
            second.__enter__()
            assert set(WorkerTraces.read(path).running_batches) == {one, two}
        assert WorkerTraces.read(path).running_batches == (two,)
        with file.running(one.task, one.batch):
            assert set(WorkerTraces.read(path).running_batches) == {one, two}
        second.__exit__(None, None, None)
        assert WorkerTraces.read(path).running_batches == ()


def test_the_number_of_running_batches_is_limited(tmp_path: Path) -> None:
    held = RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=0), batch=0)
    with RunningBatchesFile(tmp_path / "hand") as file, ExitStack() as hands:
        for _ in range(BATCHES_MAX + 1):
            hands.enter_context(file.running(held.task, held.batch))
        assert len(WorkerTraces.read(tmp_path / "hand").running_batches) == BATCHES_MAX
        hands.pop_all().close()
        assert WorkerTraces.read(tmp_path / "hand").running_batches == ()


@pytest.mark.parametrize("content", [b"", b"x" * 32, b"\xff" * 96])
def test_an_invalid_file_has_no_running_batches(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hand"
    path.write_bytes(content)
    assert WorkerTraces.read(path).running_batches == ()


def test_no_file_has_no_running_batches(tmp_path: Path) -> None:
    assert WorkerTraces.read(tmp_path / "none").running_batches == ()


def test_the_file_is_a_text_that_fits_into_a_termination_message(tmp_path: Path) -> None:
    path = tmp_path / "message"
    held = RunningBatch(task=TaskRef(purpose=Purpose.PREDICT, number=2**64 - 1), batch=2**64 - 1)
    with RunningBatchesFile(path) as file, ExitStack() as hands:
        for _ in range(BATCHES_MAX):
            hands.enter_context(file.running(held.task, held.batch))
        for _ in range(12):
            file.count_batch()
        text = path.read_text(encoding="ascii")
        assert WorkerTraces.parse(text) == WorkerTraces(running_batches=(held,) * BATCHES_MAX, batches=12)
    assert len(text) <= 4096
    assert WorkerTraces.parse("the worker was told so").batches == 0
