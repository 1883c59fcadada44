"""Large arrays are indexed before they are written, as if the file had been read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.cli.script import arrays, early_data
from elasticdl.cli.script.early_data import scan_saved
from elasticdl.shared.data import PlannedData, ReaderOptions, plan_sources
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import open_store

pytestmark = pytest.mark.tensorflow
RECORDS = 3001  # Several blocks of the scan, and a last stride that is not full.
COLUMNS: dict[str, Any] = {
    "x": np.asfortranarray(np.random.default_rng(1).normal(size=(RECORDS, 600)).astype("float32")),
    "ids": np.arange(RECORDS, dtype="int64"),
    "texts": np.array([f"text {number}" for number in range(RECORDS)]),
    "flags": np.arange(RECORDS) % 3 == 0,
}


def planned(file: Path, scan: Any, training: PlannedData | None = None) -> PlannedData:
    schema = training and training.schema
    return plan_sources(str(file), ReaderOptions(), open_store(str(file)), schema=schema, scan=scan)


def written(file: Path, columns: dict[str, Any]) -> PlannedData:
    """Data that was indexed before it was written."""
    arrays.write_with_index(file, columns, lambda: None)
    assert saved(file)
    found = planned(file, scan_saved)
    assert not saved(file)
    return found


def saved(file: Path) -> bool:
    return Path(f"{file}.index").exists()


def assert_same(one: PlannedData, other: PlannedData) -> None:
    assert (one.schema, one.remarks, list(one.sources)) == (other.schema, other.remarks, list(other.sources))
    for index, expected in zip(one.indices, other.indices, strict=True):
        assert index.has_content_of(expected)


def test_the_index_is_that_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    found = written(file, COLUMNS)
    assert found.sources[0].records == RECORDS
    assert_same(found, planned(file, scan_saved))  # There is no saved index any more, so the file is read.


def test_a_file_that_has_changed_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    arrays.write_with_index(file, COLUMNS, lambda: None)
    other = COLUMNS | {"ids": COLUMNS["ids"] + 1}
    arrays.write(file, other)
    found = planned(file, scan_saved)
    assert_same(found, planned(file, scan_saved))
    assert found.indices[0].total != written(tmp_path / "b.npz", COLUMNS).indices[0].total


def test_validation_data_has_the_types_of_the_training_data(tmp_path: Path) -> None:
    training = written(tmp_path / "a.npz", COLUMNS)
    file = tmp_path / "b.npz"
    arrays.write_with_index(file, COLUMNS | {"ids": COLUMNS["ids"].astype("int32")}, lambda: None)
    found = planned(file, scan_saved, training)
    assert found.schema.columns == training.schema.columns
    assert_same(found, planned(file, scan_saved, training))


def test_an_index_stops_with_the_writing(tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def refuse() -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        early_data.index_arrays(tmp_path / "a.npz", COLUMNS, refuse)
    with pytest.raises(EnoughError):
        arrays.write_with_index(tmp_path / "a.npz", COLUMNS, refuse)
    assert not saved(tmp_path / "a.npz")


def test_what_no_index_has_is_said_when_the_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    arrays.write_with_index(file, {"x": np.ones((3, 0), np.float32)}, lambda: None)
    assert not saved(file)
    with pytest.raises(UserError, match="so it has no records"):
        planned(file, scan_saved)
