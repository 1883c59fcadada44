"""The data of fit(): arrays, frames and data sets become columns; what no job can read is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from elasticdl.cli.script import arrays, streams
from elasticdl.shared.errors import UserError
from elasticdl.shipping.columns import columns_of

pytestmark = pytest.mark.tensorflow


def test_a_structure_of_arrays_becomes_columns_with_its_paths() -> None:
    given = {"age": np.zeros(3), "more": (np.zeros((3, 2), "int64"), tf.constant([1, 2, 3]))}
    structure, columns = columns_of("x", given)
    assert structure == {"age": "x.age", "more": ("x.more.0", "x.more.1")}
    assert {name: (array.dtype.name, array.shape) for name, array in columns.items()} == {
        "x.age": ("float32", (3,)),
        "x.more.0": ("int64", (3, 2)),
        "x.more.1": ("int32", (3,)),
    }
    assert arrays.records_of(columns) == 3


def test_frames_and_tables_are_arrays_as_for_fit() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.5, 2.5], "b": [1, 2]})
    assert columns_of("x", frame)[1]["x"].shape == (2, 2)
    assert columns_of("y", frame["a"])[1]["y"].shape == (2, 1)
    structure, columns = columns_of("x", pa.table({"a": [1, 2], "t": ["u", "v"]}))
    assert structure == {"a": "x.a", "t": "x.t"}
    assert columns["x.t"].tolist() == ["u", "v"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (tf.ragged.constant([[1], [2, 3]]), "RaggedTensor as x"),
        ("text", "x of type str"),
        (np.zeros(2, "complex64"), "type complex64"),
    ],
)
def test_what_is_no_array_is_refused_by_name(given: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        columns_of("x", given)


def test_a_frame_of_polars_is_an_array_as_for_fit() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [1.5, 2.5], "b": [1, 2]})
    assert columns_of("x", frame)[1]["x"].tolist() == [[1.5, 1.0], [2.5, 2.0]]
    assert columns_of("y", frame["b"])[1]["y"].tolist() == [1, 2]


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(UserError, match="x has 3, y has 2"):
        arrays.records_of({"x": np.zeros(3), "y": np.zeros(2)})
    with pytest.raises(UserError, match="no records"):
        arrays.records_of({"x": np.zeros(0)})


def test_columns_are_written_so_that_any_record_can_be_read(tmp_path: Path) -> None:
    arrays.write(tmp_path / "data" / "a.npz", {"x.a": np.asfortranarray(np.arange(6).reshape(3, 2)), "y": np.ones(3)})
    with np.load(tmp_path / "data" / "a.npz") as file:
        assert file["x.a"].tolist() == [[0, 1], [2, 3], [4, 5]]
        assert file["x.a"].flags.c_contiguous


def test_one_pass_over_a_dataset_is_written(tmp_path: Path) -> None:
    data = tf.data.Dataset.from_tensor_slices(({"a": np.arange(10), "t": [f"w{n}" for n in range(10)]}, np.ones(10)))
    stream = streams.read(data.shuffle(10, seed=1).batch(4).prefetch(1), None, tmp_path)
    assert stream.layout.features == {"a": "x.a", "t": "x.t"}
    assert sorted(stream.columns["x.a"].tolist()) == list(range(10))
    assert [f"w{n}" for n in stream.columns["x.a"]] == stream.columns["x.t"].tolist()
    assert (stream.batch_size, stream.shuffled) == (4, True)


def test_a_long_pass_says_how_far_it_is_and_has_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tf.data.Dataset.from_tensor_slices((np.zeros((40, 1024), "float32"), np.zeros(40, "float32"))).batch(10)
    streams.read(data, None, tmp_path / "whole", limits=streams.Limits(progress_s=0.0))
    assert "Reading the dataset of fit(): 20 records, 80.1 KiB\n" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"the dataset of fit\(\) has more than 100 KiB\n.* elasticdl train"):
        streams.read(data, None, tmp_path / "large", limits=streams.Limits(bytes_max=100 << 10))
    assert sum(file.stat().st_size for file in (tmp_path / "large").iterdir()) < 130 << 10  # It ends at the limit.


def test_a_py_dataset_is_read_by_number(tmp_path: Path) -> None:
    class Squares(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            numbers = np.arange(2) + 2 * index
            return numbers, numbers**2

    stream = streams.read(Squares(), None, tmp_path, shuffle=False)
    assert stream.columns["y"].tolist() == [0, 1, 4, 9, 16, 25]
    assert not stream.shuffled


def test_an_endless_dataset_needs_its_steps(tmp_path: Path) -> None:
    data = tf.data.Dataset.from_tensor_slices((np.arange(4), np.arange(4))).batch(2).repeat()
    with pytest.raises(UserError, match="has no end"):
        streams.read(data, None, tmp_path)
    assert len(streams.read(data, 3, tmp_path).columns["x"]) == 6
    assert len(streams.read(data.take(2), 1, tmp_path / "first").columns["x"]) == 2


def test_batches_of_different_shapes_are_refused(tmp_path: Path) -> None:
    data = tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros((2, 3)), np.zeros(2)), (np.zeros((2, 4)), np.zeros(2))]),
        output_signature=(tf.TensorSpec((None, None)), tf.TensorSpec((None,))),
    )
    with pytest.raises(UserError, match="x has the shape \\(4,\\) after \\(3,\\)"):
        streams.read(data, None, tmp_path)


def test_what_workers_can_not_read_is_refused_with_a_hint() -> None:
    loader = type("DataLoader", (), {"__module__": "torch.utils.data.dataloader"})
    with pytest.raises(UserError, match="DataLoader of PyTorch"):
        streams.is_stream(loader())
    assert not streams.is_stream(np.zeros(3))
