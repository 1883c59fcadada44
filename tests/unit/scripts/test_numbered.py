"""Data that workers make from the numbers of records: batches of a PyDataset, and what is given beside one."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from elasticdl.cli.script import call_data
from elasticdl.cli.script.call_data import CallData
from elasticdl.shared.errors import UserError
from elasticdl.shipping.columns import Layout
from elasticdl.shipping.numbered import Batches, NumberedData
from elasticdl.shipping.pickling import loads
from elasticdl.shipping.shipped import TRAINING, VALIDATION, dump_source

pytestmark = pytest.mark.tensorflow
SCRIPT = Path("/nowhere/script.py")


class Squares(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of 4 numbers and their squares; each epoch has another order of records."""

    def __init__(self, batches: int = 5, **more: Any) -> None:
        super().__init__()
        self.order = np.arange(4 * batches)
        self.more = more

    def __len__(self) -> int:
        return len(self.order) // 4

    def __getitem__(self, index: int) -> Any:
        numbers = self.order[4 * index : 4 * index + 4]
        return (numbers, numbers**2, np.full(4, 0.5)) if self.more.get("weighted") else (numbers, numbers**2)

    def on_epoch_end(self) -> None:
        np.random.shuffle(self.order)
        if self.more.get("shrinks"):
            self.order = self.order[4:]


@contextmanager
def seeded(epoch: int) -> Iterator[None]:
    random.seed(epoch)
    np.random.seed(epoch)
    yield


def data_of(x: Any, folder: Path, *, reads_here: bool = True, **given: Any) -> CallData:
    plain = dict.fromkeys(
        ("y", "sample_weight", "steps_per_epoch", "batch_size", "validation_data", "validation_steps")
    )
    plain |= {"validation_split": 0.0, "validation_batch_size": None, "shuffle": True, "epochs": 1, "initial_epoch": 0}
    return call_data.data_of({"x": x, **plain, **given}, folder, SCRIPT, reads_here=reads_here)


def read(data: CallData, folder: Path, purpose: str, number: int, epoch: int = 0) -> dict[str, list[Any]]:
    reader = NumberedData(lambda: loads(data.sources[purpose], folder / "model" / f"{purpose}_arrays"), data.layout)
    reader.reach(epoch, seeded)
    return {name: column.tolist() for name, column in reader.read(np.array([number])).items()}


def test_a_record_of_the_job_is_a_batch_of_the_dataset(tmp_path: Path) -> None:
    data = data_of(Squares(), tmp_path)
    assert {name: column.tolist() for name, column in data.training.items()} == {"number": [0, 1, 2, 3, 4]}
    assert (data.batch_size, data.shuffle, data.layout) == (1, True, Layout(features="x", labels="y"))
    assert read(data, tmp_path, TRAINING, 2) == {"x": [8, 9, 10, 11], "y": [64, 81, 100, 121]}


def test_validation_data_of_any_kind_is_read_in_batches_too(tmp_path: Path) -> None:
    given = (np.arange(10), np.arange(10))
    arrays = data_of(Squares(), tmp_path / "arrays", validation_data=given, validation_batch_size=8)
    assert arrays.validation is not None
    assert arrays.validation["number"].tolist() == [0, 1]
    assert read(arrays, tmp_path / "arrays", VALIDATION, 1) == {"x": [8, 9], "y": [8, 9]}
    other = data_of(Squares(), tmp_path / "other", validation_data=Squares(2, weighted=True), validation_steps=1)
    assert other.validation is not None
    assert other.validation["number"].tolist() == [0]
    assert read(other, tmp_path / "other", TRAINING, 0)["sample_weight"] == [1, 1, 1, 1]
    assert read(other, tmp_path / "other", VALIDATION, 0)["sample_weight"] == [0.5] * 4


def batches() -> Iterator[Any]:
    """Batches of one to three records that count on, without an end."""
    for number in itertools.count():
        yield np.full(1 + number % 3, number), np.zeros(1 + number % 3)


def test_each_epoch_continues_a_generator_where_the_one_before_has_ended(tmp_path: Path) -> None:
    generator = batches()
    data = data_of(generator, tmp_path, steps_per_epoch=2, epochs=4, initial_epoch=1, validation_data=(np.ones(3),) * 2)
    assert data.training["number"].tolist() == [0, 1]
    assert (data.batch_size, data.shuffle) == (1, False)
    read_by_epochs = [[read(data, tmp_path, TRAINING, n, epoch)["x"] for n in (0, 1)] for epoch in range(3)]
    assert read_by_epochs == [[[0], [1, 1]], [[2, 2, 2], [3]], [[4, 4], [5, 5, 5]]]
    assert read(data, tmp_path, VALIDATION, 0)["x"] == [1, 1, 1]
    assert next(generator)[0].tolist() == [6]  # As after fit().


def test_a_run_that_resumes_takes_what_a_former_call_took_from_a_generator() -> None:
    generator = batches()
    given = {"x": generator, "steps_per_epoch": 3, "epochs": 2, "initial_epoch": 0}
    call_data.few_of(given)
    call_data.pass_over(given, 1)
    assert next(generator)[0].tolist() == [6]


def test_a_dataset_without_an_end_is_drawn_too_unless_an_epoch_is_one_pass(tmp_path: Path) -> None:
    numbers = tf.data.Dataset.from_tensor_slices((np.arange(6), np.arange(6))).batch(2)
    endless = data_of(numbers.repeat().prefetch(1), tmp_path / "drawn", steps_per_epoch=2, epochs=2)
    drawn = [read(endless, tmp_path / "drawn", TRAINING, n, epoch)["x"] for epoch in (0, 1) for n in (0, 1)]
    assert drawn == [[0, 1], [2, 3], [4, 5], [0, 1]]
    for number, times in enumerate((None, 2)):
        repeated = numbers.repeat(times).prefetch(1)
        passes = data_of(repeated, tmp_path / f"passes-{number}", steps_per_epoch=3, epochs=2)
        assert passes.training["x"].tolist() == [0, 1, 2, 3, 4, 5]
    again = data_of(numbers.repeat(2), tmp_path / "again", steps_per_epoch=3, epochs=3)
    assert again.training["number"].tolist() == [0, 1, 2]
    assert read(again, tmp_path / "again", TRAINING, 0, epoch=2)["x"] == [0, 1]


def counting(records: int) -> Iterator[Any]:
    yield from ((number, number) for number in range(records))


@pytest.mark.parametrize(
    ("steps", "epochs"),
    [(2, [[0, 1], [2, 0], [1, 2]]), (3, [[0, 1, 2]] * 3), (7, [[0, 1, 2]] * 3)],
    ids=["fewer than a pass", "a pass", "more than a pass"],
)
def test_each_epoch_continues_a_dataset_of_unknown_length(steps: int, epochs: list[list[int]], tmp_path: Path) -> None:
    signature = (tf.TensorSpec((), tf.int64),) * 2
    dataset = tf.data.Dataset.from_generator(lambda: counting(6), output_signature=signature).batch(2)
    data = data_of(dataset, tmp_path, steps_per_epoch=steps, epochs=3)
    firsts = [
        [read(data, tmp_path, TRAINING, n, epoch)["x"][0] // 2 for n in data.training["number"]] for epoch in range(3)
    ]
    assert firsts == epochs


@pytest.mark.parametrize("shuffle", [False, True])
def test_each_epoch_continues_arrays_with_steps(shuffle: bool, tmp_path: Path) -> None:
    given: dict[str, Any] = {"y": np.arange(10), "batch_size": 2, "steps_per_epoch": 3, "epochs": 5, "shuffle": shuffle}
    data = data_of(np.arange(10), tmp_path, validation_split=0.2, **given)
    assert data.training["number"].tolist() == [0, 1, 2]
    read_by_epochs = [read(data, tmp_path, TRAINING, n, epoch)["x"] for epoch in range(4) for n in range(3)]
    passes = [[one for batch in read_by_epochs[start : start + 4] for one in batch] for start in (0, 4, 8)]
    assert [sorted(one) for one in passes] == [list(range(8))] * 3  # Two records are validation data.
    assert (passes[0] == passes[1] == list(range(8))) is not shuffle
    assert read(data, tmp_path, VALIDATION, 0)["x"] == [8, 9]
    whole = data_of(np.arange(10), tmp_path / "whole", **given | {"steps_per_epoch": 9})
    assert whole.training["x"].tolist() == list(range(10))  # As fit() does it, which warns.


def test_each_epoch_continues_a_py_dataset_with_steps(tmp_path: Path) -> None:
    class Endless(keras.utils.PyDataset):  # type: ignore[misc]
        num_batches = None

        def __getitem__(self, index: int) -> Any:
            return np.array([index]), np.array([index])

    endless = data_of(Endless(), tmp_path / "endless", steps_per_epoch=2, epochs=2)
    found = [read(endless, tmp_path / "endless", TRAINING, n, epoch)["x"] for epoch in (0, 1) for n in (0, 1)]
    assert found == [[0], [1], [2], [3]]
    dataset = Squares()
    dataset.on_epoch_end = lambda: None  # type: ignore[method-assign]
    some = data_of(dataset, tmp_path / "some", steps_per_epoch=4, epochs=5, shuffle=False)
    starts = [read(some, tmp_path / "some", TRAINING, 0, epoch)["x"][0] for epoch in range(5)]
    assert starts == [0, 16, 12, 8, 4]


def test_random_numbers_in_a_map_differ_in_each_epoch(tmp_path: Path) -> None:
    noisy = tf.data.Dataset.from_tensor_slices((np.zeros(6), np.zeros(6))).map(lambda x, y: (tf.random.normal(()), y))
    data = data_of(noisy.batch(4), tmp_path, epochs=2, validation_data=noisy.batch(2))
    assert data.training["number"].tolist() == [0, 1]
    found = [read(data, tmp_path, TRAINING, n, epoch)["x"] for epoch in (0, 1) for n in (0, 1)]
    assert [len(one) for one in found] == [4, 2, 4, 2]
    assert len({number for one in found for number in one}) == 12


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, r"the generator of fit\(\) has no length\n  Give fit\(\) steps_per_epoch"),
        ({"steps_per_epoch": 2, "epochs": 3}, "ended after 5 batches, and 3 epochs of 2 steps need 6"),
        ({"steps_per_epoch": 2, "epochs": 2, "validation_data": batches()}, "the validation data .* is a generator"),
        ({"steps_per_epoch": 2, "validation_data": batches()}, r"no length\n  Give fit\(\) validation_steps"),
    ],
    ids=["no steps", "too few", "validation in several epochs", "no steps of validation"],
)
def test_what_a_generator_can_not_give_is_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        data_of((one for one in itertools.islice(batches(), 5)), tmp_path, **given)


def test_pods_can_not_continue_data_from_epoch_to_epoch(tmp_path: Path) -> None:
    numbers = tf.data.Dataset.from_tensor_slices((np.arange(6), np.arange(6))).batch(2).repeat()
    for x, what in ((batches(), "a generator"), (numbers, "a dataset whose epochs differ")):
        with pytest.raises(UserError, match=what):
            data_of(x, tmp_path, steps_per_epoch=2, epochs=2, reads_here=False)
    passes = data_of(numbers, tmp_path, steps_per_epoch=3, epochs=2, reads_here=False)
    assert passes.training["x"].tolist() == [0, 1, 2, 3, 4, 5]


def test_every_process_takes_a_dataset_through_the_same_epochs_also_back(tmp_path: Path) -> None:
    made = []

    def load() -> Batches:
        made.append(1)
        return Batches(Squares(), 5)

    def records(reader: NumberedData, epoch: int) -> list[int]:
        reader.reach(epoch, seeded)
        return [one for number in range(5) for one in reader.read(np.array([number]))["x"].tolist()]

    first, second = (NumberedData(load, Layout(features="x", labels="y")) for _ in range(2))
    expected = {epoch: records(first, epoch) for epoch in (0, 1, 2, 3)}
    assert made == [1]
    assert {tuple(sorted(found)) for found in expected.values()} == {tuple(range(20))}
    assert len({tuple(found) for found in expected.values()}) == 4
    for epoch in (2, 1, 2, 1, 3, 2, 3):
        assert records(second, epoch) == expected[epoch]
    assert len(made) <= 3


def test_large_arrays_are_mapped_and_not_loaded(tmp_path: Path) -> None:
    dataset = Squares()
    dataset.more = {"table": np.ones((600, 300)), "again": None}
    dataset.more["again"] = dataset.more["table"]
    content = dump_source(tmp_path, SCRIPT, TRAINING, Batches(dataset, 5))
    assert len(content) < 10_000
    assert [file.name for file in (tmp_path / "training_arrays").iterdir()] == ["0.npy"]
    found: Any = loads(content, tmp_path / "training_arrays")
    table = found._dataset.more["table"]
    assert table is found._dataset.more["again"]
    assert not table.flags.owndata
    table[:] = 2  # A dataset may shuffle its arrays in place; that stays in the process.
    assert loads(content, tmp_path / "training_arrays")._dataset.more["table"][0, 0] == 1


def test_a_dataset_that_can_not_travel_is_read_here_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_of(Squares(file=threading.local()), tmp_path)
    assert data.sources == {}
    assert data.training["x"].tolist() == list(range(20))
    assert "Squares can't be sent to the workers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"x": Squares(0)}, "the Squares of fit\\(\\) gives no batch"),
        ({"validation_split": 0.5}, "validation_split and a dataset"),
        ({"validation_data": (np.arange(3),)}, "the training data of fit\\(\\) has x, y, its validation data x"),
    ],
)
def test_what_no_job_can_read_is_refused_by_name(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        data_of(folder=tmp_path, **({"x": Squares()} | given))


def test_a_dataset_with_fewer_batches_after_an_epoch_is_refused() -> None:
    reader = NumberedData(lambda: Batches(Squares(shrinks=True), 5), Layout(features="x", labels="y"))
    reader.reach(0, seeded)
    with pytest.raises(UserError, match=r"Squares has 4 batches after on_epoch_end\(\), and had 5"):
        reader.reach(1, seeded)


def test_batches_of_different_shapes_are_refused_with_their_number() -> None:
    class Growing(Squares):
        def __getitem__(self, index: int) -> Any:
            return np.zeros((4, 3 + index))

    reader = NumberedData(lambda: Batches(Growing(), 5), Layout(features="x"))
    reader.reach(0, seeded)
    reader.read(np.array([0]))
    with pytest.raises(UserError, match=r"batch 3 of Growing: x has the shape \(6,\) for each record, after \(3,\)"):
        reader.read(np.array([3]))
