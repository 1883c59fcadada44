"""Files of predictions: columns, formats, and which files get their final names."""

from __future__ import annotations

import io
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from elasticdl.shared.data.ragged import Ragged
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.storage import MemoryStore
from elasticdl.worker.predictions.columns import Arrays, concatenated, output_columns, table
from elasticdl.worker.predictions.formats import encode
from elasticdl.worker.predictions.output import PredictionOutput

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_one_output_is_one_column_and_a_last_dimension_of_one_is_left_out() -> None:
    assert {name: one.tolist() for name, one in output_columns(ROWS[:, :1], (), 3).items()} == {"prediction": [0, 2, 4]}
    assert output_columns(ROWS, ("dense",), 3)["prediction"].shape == (3, 2)
    assert output_columns(ROWS.astype(np.float16), (), 3)["prediction"].dtype == np.float32


@pytest.mark.parametrize(
    ("outputs", "names", "columns"),
    [
        ({"ctr": ROWS, "cvr": ROWS}, (), ["prediction_ctr", "prediction_cvr"]),
        ([ROWS, ROWS], ("a", "b"), ["prediction_a", "prediction_b"]),
        ((ROWS, {"x": ROWS}), ("a",), ["prediction_0", "prediction_1_x"]),
    ],
)
def test_several_outputs_are_named(outputs: Any, names: tuple[str, ...], columns: list[str]) -> None:
    assert list(output_columns(outputs, names, 3)) == columns


@pytest.mark.parametrize("outputs", [np.float32(1.0), ROWS[:2]])
def test_outputs_without_a_row_for_each_record_are_refused(outputs: Any) -> None:
    with pytest.raises(
        UserError, match=r"the output prediction of the model has the shape .* for a batch of 3 records"
    ):
        output_columns(outputs, (), 3)


def tables() -> pa.Table:
    """Two batches with every kind of column."""
    tags = Ragged(values=np.array([7, 8]), splits=np.array([0, 2, 2]))
    batches: list[Arrays] = [
        {"id": np.array([1, 2]), "name": np.array([b"a", b"\xc3\xa4"], object), "tags": tags, "prediction": ROWS[:2]},
        {
            "id": np.array([3]),
            "name": np.array([b""], object),
            "tags": Ragged(values=np.array([9]), splits=np.array([0, 1])),
            "prediction": ROWS[2:],
        },
    ]
    return table(concatenated(batches))


def test_parquet_holds_vectors_and_ragged_columns_as_lists() -> None:
    found = pa.parquet.read_table(io.BytesIO(encode(tables(), "parquet")))
    assert found.to_pylist() == [
        {"id": 1, "name": "a", "tags": [7, 8], "prediction": [0, 1]},
        {"id": 2, "name": "ä", "tags": [], "prediction": [2, 3]},
        {"id": 3, "name": "", "tags": [9], "prediction": [4, 5]},
    ]


def test_csv_has_a_column_for_each_element_of_a_vector_and_refuses_ragged_columns() -> None:
    found = pa.csv.read_csv(io.BytesIO(encode(tables().drop_columns(["tags"]), "csv")))
    assert found.to_pydict() == {
        "id": [1, 2, 3],
        "name": ["a", "ä", ""],
        "prediction_0": [0, 2, 4],
        "prediction_1": [1, 3, 5],
    }
    with pytest.raises(UserError, match="CSV can't hold the column tags"):
        encode(tables(), "csv")


def output(store: MemoryStore, tasks: int = 2) -> PredictionOutput:
    return PredictionOutput(store=store, folder="memory://out", job="job-1", tasks=tasks, suffix="parquet")


def content(store: MemoryStore) -> dict[str, bytes]:
    return {info.uri.removeprefix("memory://out/"): store.read(info.uri) for info in store.list("memory://out/")}


def test_only_the_files_that_count_are_published_and_publishing_twice_changes_nothing() -> None:
    store = MemoryStore()
    files = output(store)
    names = [files.write(task, data) for task, data in ((1, b"b"), (0, b"a"), (0, b"late"))]
    assert len(set(names)) == 3
    assert all(name.startswith("_temporary/job-1/") for name in content(store))
    published = {"part-00000-of-00002.parquet": b"a", "part-00001-of-00002.parquet": b"b", "_SUCCESS": b""}
    for _ in range(2):
        deque(files.publish([names[1], names[0]]), maxlen=0)
        assert content(store) == published


def test_publishing_that_was_interrupted_continues() -> None:
    store = MemoryStore()
    files = output(store)
    names = [files.write(0, b"a"), files.write(1, b"b")]
    next(files.publish(names))
    assert "_SUCCESS" not in content(store)
    deque(files.publish(names), maxlen=0)
    assert content(store).keys() == {"part-00000-of-00002.parquet", "part-00001-of-00002.parquet", "_SUCCESS"}


def test_a_file_that_counts_and_is_gone_is_named() -> None:
    store = MemoryStore()
    files = output(store, tasks=1)
    with pytest.raises(PermanentError, match=r"memory://out/_temporary/job-1/0-x.parquet are gone"):
        next(files.publish(["0-x"]))
    assert content(store) == {}
