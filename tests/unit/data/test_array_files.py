"""NumPy and IDX files: any range gives the values that were stored."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore

Array = npt.NDArray[Any]
RECORDS = 700
POINT = np.dtype([("x", ">f4"), ("name", "U3"), ("box", "i2", (2, 2))])


def npy_bytes(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz_bytes(*, compressed: bool = False, **arrays: Array) -> bytes:
    file = io.BytesIO()
    save: Callable[..., None] = np.savez_compressed if compressed else np.savez
    save(file, **arrays)
    return file.getvalue()


def idx_bytes(array: Array, code: int = 0x08) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape) + array.tobytes()


def planned_with(
    objects: Mapping[str, bytes], paths: str = "memory://d", **options: Any
) -> tuple[MemoryStore, PlannedData]:
    store = MemoryStore()
    for name, data in objects.items():
        store.write(f"memory://d/{name}", data)
    return store, plan_sources(paths, ReaderOptions(**options), store)


def read(store: MemoryStore, planned: PlannedData, start: int, end: int, source: int = 0) -> dict[str, Any]:
    reader = Reader(store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__)
    shard = Shard(source=source, start=start, end=end)
    batch = reader.read(shard).take(range(end - start))
    assert batch.checksum == reader.checksum(shard)
    return dict(batch.columns)


def types(planned: PlannedData) -> dict[str, str]:
    return dict(zip(planned.schema.metadata.column_names, planned.schema.metadata.column_types, strict=True))


ARRAYS: dict[str, tuple[Array, str]] = {
    "int64": (np.arange(RECORDS) - 5, "int64"),
    "big-endian": (np.arange(RECORDS, dtype=">i2"), "int16"),
    "bool": (np.arange(RECORDS) % 3 == 0, "bool"),
    "half": (np.arange(RECORDS, dtype=np.float16), "float16"),
    "vectors": (np.arange(RECORDS * 5, dtype=np.float32).reshape(RECORDS, 5), "float32[5]"),
    "images": (np.arange(RECORDS * 12, dtype=np.int32).reshape(RECORDS, 3, 4).astype(np.uint8), "uint8[3x4]"),
    "texts": (np.array([f"é{number}" for number in range(RECORDS)]), "string"),
    "bytes": (np.array([b"b%d" % number for number in range(RECORDS)]), "binary"),
    "days": (np.arange(RECORDS).astype("datetime64[D]"), "int64"),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("kind", ["npy", "npy.gz", "npz", "compressed.npz"])
@pytest.mark.parametrize("cut", [(0, RECORDS), (3, 4), (250, 260), (690, RECORDS)])
def test_ranges_of_every_type(name: str, kind: str, cut: tuple[int, int]) -> None:
    array, expected_type = ARRAYS[name]
    if kind.endswith("npz"):
        column, data = "a", npz_bytes(compressed=kind.startswith("c"), a=array)
    else:
        column, data = "values", npy_bytes(array)
        data = gzip.compress(data, mtime=0) if kind.endswith("gz") else data
    store, planned = planned_with({f"x.{kind}": data})
    assert types(planned) == {column: expected_type}
    assert planned.sources[0].records == RECORDS
    found = read(store, planned, *cut)[column]
    expected = array[slice(*cut)]
    assert found.tolist() == (expected.view(np.int64) if name == "days" else expected).tolist()
    assert found.dtype.isnative


@given(cut=st.tuples(st.integers(0, RECORDS - 1), st.integers(1, RECORDS)), records=st.integers(1, RECORDS))
def test_arrays_of_an_archive_are_columns(cut: tuple[int, int], records: int) -> None:
    x, y = np.arange(records * 3, dtype=np.float32).reshape(records, 3), np.arange(records)
    store, planned = planned_with({"a.npz": npz_bytes(x=x, y=y)})
    start, end = cut[0] % records, min(cut[1], records)
    if start < end:
        found = read(store, planned, start, end)
        assert found["x"].tolist() == x[start:end].tolist()
        assert found["y"].tolist() == y[start:end].tolist()


def test_fields_of_a_structured_array_are_columns() -> None:
    points = np.zeros(5, POINT)
    points["x"], points["name"], points["box"] = np.arange(5), ["a", "b", "c", "d", "e"], np.arange(20).reshape(5, 2, 2)
    store, planned = planned_with({"a.npy": npy_bytes(points)}, columns=("box", "x"))
    assert types(planned) == {"box": "int16[2x2]", "x": "float32"}
    found = read(store, planned, 1, 3)
    assert found["x"].tolist() == [1, 2]
    assert found["box"].tolist() == points["box"][1:3].tolist()


def test_files_are_one_data_set_with_the_wider_type() -> None:
    store, planned = planned_with(
        {"a.npy": npy_bytes(np.array([1, 2], np.int32)), "b.npy": npy_bytes(np.array([2**40]))}
    )
    assert types(planned) == {"values": "int64"}
    assert read(store, planned, 0, 2)["values"].dtype == np.int64


def test_a_given_type() -> None:
    images = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    store, planned = planned_with({"a.npy": npy_bytes(images)}, column_types={"values": "float32[2x2]"})
    found = read(store, planned, 0, 2)["values"]
    assert (found.dtype, found.tolist()) == (np.dtype(np.float32), images.tolist())
    assert planned.remarks == {"values": "was uint8[2x2]"}
    with pytest.raises(UserError, match=r"a.npy, record 1 \(from 0\): column 'values' is not int64: nan"):
        planned_with({"a.npy": npy_bytes(np.array([1, np.nan]))}, column_types={"values": "int64"})
    with pytest.raises(UserError, match=r"record 2 \(from 0\): column 'values' is not int8: 300"):
        planned_with({"a.npy": npy_bytes(np.array([1, 2, 300]))}, column_types={"values": "int8"})
    with pytest.raises(UserError, match=r"has type uint8\[2x2\], which can't be read as float32"):
        planned_with({"a.npy": npy_bytes(images)}, column_types={"values": "float32"})


DAYS = np.array(["2020-01-01", "NaT", "2020-01-03", "NaT"], "M8[D]")


@pytest.mark.parametrize("dates", [DAYS, DAYS.astype(">M8[D]"), DAYS - np.datetime64("1970-01-01")])
def test_a_missing_date_needs_a_value(dates: Array) -> None:
    with pytest.raises(UserError, match=r"missing in 'values' \(2 of type int64, the first in record 1 of .*a\.npy"):
        planned_with({"a.npy": npy_bytes(dates)})
    store, planned = planned_with({"a.npy": npy_bytes(dates)}, fill_missing={"values": "-1"})
    assert read(store, planned, 0, 4)["values"].tolist() == [18262, -1, 18264, -1]
    store, planned = planned_with({"a.npy": npy_bytes(dates)}, column_types={"values": "float64"})
    np.testing.assert_array_equal(read(store, planned, 0, 4)["values"], [18262.0, np.nan, 18264.0, np.nan])


def test_missing_dates_of_records_with_several() -> None:
    dates = {"a.npy": npy_bytes(DAYS[[0, 2, 0, 1]].reshape(2, 2))}
    with pytest.raises(UserError, match=r"missing in 'values' \(1 of type int64\[2\], the first in record 1 of"):
        planned_with(dates)
    store, planned = planned_with(dates, fill_missing={"values": "0"})
    assert read(store, planned, 0, 2)["values"].tolist() == [[18262, 18264], [18262, 0]]


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.asfortranarray(np.ones((3, 2))), "stored column by column"),
        (np.array([{}], dtype=object), "Python objects"),
        (np.array(7), r"shape \(\), so it has no records"),
        (np.ones(2, complex), "type complex128, which can't be read"),
    ],
)
def test_arrays_without_readable_records(array: Array, match: str) -> None:
    with pytest.raises(UserError, match=rf"a.npy.*{match}"):
        planned_with({"a.npy": npy_bytes(array)})


def test_arrays_of_different_lengths() -> None:
    arrays = npz_bytes(x_train=np.ones(3), y_train=np.ones(3), x_test=np.ones(2))
    with pytest.raises(UserError, match="x_train 3, y_train 3, x_test 2") as raised:
        planned_with({"a.npz": arrays})
    assert "--columns x_train,y_train" in str(raised.value.hint)
    _, planned = planned_with({"a.npz": arrays}, columns=("x_train", "y_train"))
    assert planned.sources[0].records == 3


@pytest.mark.parametrize("kind", ["npy", "npy.gz", "idx"])
def test_a_truncated_file_names_the_record(kind: str) -> None:
    array = np.arange(40, dtype=np.uint8).reshape(10, 4)
    data = (idx_bytes(array) if kind == "idx" else npy_bytes(array))[:-6]
    data = gzip.compress(data, mtime=0) if kind.endswith("gz") else data
    with pytest.raises(UserError, match=r"promises 10 records, record 8 \(from 0\) is incomplete"):
        planned_with({f"a.{kind}" if kind != "idx" else "a": data})


def damaged_archive() -> bytes:
    """An archive with a compressed array that is none."""
    file = io.BytesIO()
    np.savez_compressed(file, x=np.arange(1000))
    data = bytearray(file.getvalue())
    begin = 30 + sum(struct.unpack("<HH", data[26:30]))  # Behind the header of the member.
    data[begin : begin + 8] = bytes([0xFF] * 8)
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x05\x00{'x':", b"PK\x03\x04 and more", b"PK\x05\x06", damaged_archive()],
)
def test_damaged_files_are_refused(data: bytes) -> None:
    for name in ("a.npy", "a.npz"):
        with pytest.raises(UserError, match=name):
            planned_with({name: data})


def mnist(part: str, records: int) -> dict[str, bytes]:
    images = np.arange(records * 4, dtype=np.uint8).reshape(records, 2, 2)
    return {
        f"{part}-images-idx3-ubyte": idx_bytes(images),
        f"{part}-labels-idx1-ubyte.gz": gzip.compress(idx_bytes(np.arange(records, dtype=np.uint8)), mtime=0),
    }


def test_images_and_their_labels_are_one_source() -> None:
    store, planned = planned_with(mnist("train", 6))
    assert types(planned) == {"image": "uint8[2x2]", "label": "uint8"}
    assert [source.uri for source in planned.sources] == ["memory://d/train-images-idx3-ubyte"]
    found = read(store, planned, 2, 4)
    assert found["label"].tolist() == [2, 3]
    assert found["image"].tolist() == [[[8, 9], [10, 11]], [[12, 13], [14, 15]]]


def test_changed_labels_are_noticed() -> None:
    store, planned = planned_with(mnist("train", 6))
    store.write("memory://d/train-labels-idx1-ubyte.gz", gzip.compress(idx_bytes(np.zeros(6, np.uint8)), mtime=0))
    with pytest.raises(UserError, match="train-images-idx3-ubyte changed since the job was planned"):
        read(store, planned, 2, 4)


def test_an_idx_file_of_other_numbers() -> None:
    store, planned = planned_with({"vectors": idx_bytes(np.arange(6, dtype=">f4").reshape(3, 2), 0x0D)})
    assert types(planned) == {"image": "float32[2]"}
    assert read(store, planned, 1, 3)["image"].tolist() == [[2, 3], [4, 5]]


def test_training_and_test_data_are_not_mixed() -> None:
    both = mnist("train", 6) | mnist("t10k", 2)
    with pytest.raises(UserError, match="the training data and the test data of MNIST"):
        planned_with(both)
    _, planned = planned_with(both, "memory://d/t10k-*")
    assert planned.sources[0].records == 2


def test_labels_alone_or_of_another_number_are_refused() -> None:
    files = mnist("train", 6)
    labels = "train-labels-idx1-ubyte.gz"
    with pytest.raises(UserError, match="has labels, and there are no images"):
        planned_with({labels: files[labels]})
    files[labels] = gzip.compress(idx_bytes(np.zeros(5, np.uint8)), mtime=0)
    with pytest.raises(UserError, match=r"differ in their first dimension.*image 6, label 5"):
        planned_with(files)


def test_the_format_follows_from_the_content() -> None:
    store, planned = planned_with({"part-0": npy_bytes(np.arange(3))})
    assert read(store, planned, 0, 3)["values"].tolist() == [0, 1, 2]
