"""The mapped file that says which batch a dead worker had in hand."""

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
from elasticdl.shared.process.running_batches import BATCHES_MAX, RunningBatchesFile, read_in_hand

NUMBERS = st.integers(min_value=0, max_value=2**64 - 1)


@given(purpose=st.sampled_from(Purpose), task=NUMBERS, batch=NUMBERS)
def test_what_is_held_is_read(
    tmp_path_factory: pytest.TempPathFactory, purpose: Purpose, task: int, batch: int
) -> None:
    path = tmp_path_factory.mktemp("hand") / "hand"
    held = RunningBatch(task=TaskRef(purpose=purpose, number=task), batch=batch)
    with RunningBatchesFile(path) as file:
        with file.holding(held):
            assert read_in_hand(path) == (held,)
        assert read_in_hand(path) == ()


def test_several_batches_are_held_and_let_go_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "hand"
    one, two = (RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=7), batch=batch) for batch in (3, 4))
    with RunningBatchesFile(path) as file:
        first, second = file.holding(one), file.holding(two)
        with first:
            second.__enter__()
            assert set(read_in_hand(path)) == {one, two}
        assert read_in_hand(path) == (two,)
        with file.holding(one):
            assert set(read_in_hand(path)) == {one, two}
        second.__exit__(None, None, None)
        assert read_in_hand(path) == ()


def test_a_hand_has_its_limit(tmp_path: Path) -> None:
    held = RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=0), batch=0)
    with RunningBatchesFile(tmp_path / "hand") as file, ExitStack() as hands:
        for _ in range(BATCHES_MAX):
            hands.enter_context(file.holding(held))
        with pytest.raises(InvariantError):
            hands.enter_context(file.holding(held))


@pytest.mark.parametrize("content", [b"", b"EDLhand2", b"x" * 32, b"EDLhand2" + b"\xff" * 96])
def test_anything_else_is_an_empty_hand(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "hand"
    path.write_bytes(content)
    assert read_in_hand(path) == ()


def test_no_file_is_an_empty_hand(tmp_path: Path) -> None:
    assert read_in_hand(tmp_path / "none") == ()
