"""The memory-mapped file with the batches that a worker was running when it crashed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import Purpose
from elasticdl.shared.process.running_batches import BATCHES_MAX, RunningBatchesFile, read_running_batches

NUMBERS = st.integers(min_value=0, max_value=2**64 - 1)


@given(purpose=st.sampled_from(Purpose), task=NUMBERS, batch=NUMBERS)
def test_a_running_batch_is_read(
    tmp_path_factory: pytest.TempPathFactory, purpose: Purpose, task: int, batch: int
) -> None:
    path = tmp_path_factory.mktemp("hand") / "hand"
    held = RunningBatch(task=TaskRef(purpose=purpose, number=task), batch=batch)
    with RunningBatchesFile(path) as file:
        with file.running(held):
            assert read_running_batches(path) == (held,)
        assert read_running_batches(path) == ()


def test_several_batches_start_and_end_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "hand"
    one, two = (RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=7), batch=batch) for batch in (3, 4))
    with RunningBatchesFile(path) as file:
        first, second = file.running(one), file.running(two)
        with first:
            second.__enter__()
            assert set(read_running_batches(path)) == {one, two}
        assert read_running_batches(path) == (two,)
        with file.running(one):
            assert set(read_running_batches(path)) == {one, two}
        second.__exit__(None, None, None)
        assert read_running_batches(path) == ()


def test_the_number_of_running_batches_is_limited(tmp_path: Path) -> None:
    held = RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=0), batch=0)
    with RunningBatchesFile(tmp_path / "hand") as file, ExitStack() as hands:
        for _ in range(BATCHES_MAX):
            hands.enter_context(file.running(held))
        with pytest.raises(InvariantError):
            hands.enter_context(file.running(held))


@pytest.mark.parametrize("content", [b"", b"EDLhand2", b"x" * 32, b"EDLhand2" + b"\xff" * 96])
def test_an_invalid_file_has_no_running_batches(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hand"
    path.write_bytes(content)
    assert read_running_batches(path) == ()


def test_no_file_has_no_running_batches(tmp_path: Path) -> None:
    assert read_running_batches(tmp_path / "none") == ()
