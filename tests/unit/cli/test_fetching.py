"""Objects of a store are fetched while others are scanned; the result is that of a scan that reads each by itself."""

from __future__ import annotations

import gzip
import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.deadline import DEADLINE_S

from elasticdl.cli.indexing import fetching
from elasticdl.cli.indexing.fetching import scan_ahead
from elasticdl.shared.data import ReaderOptions, discover, scan_sources
from elasticdl.shared.data.formats import recordio, tfrecord
from elasticdl.shared.data.indices import columns
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.storage import MemoryStore, ObjectInfo, ObjectNotFoundError

OPTIONS = ReaderOptions(csv_delimiter=",")


class WatchedStore(MemoryStore):
    """Calls ``on_read`` before an object is read, and notes the objects that are read as streams."""

    def __init__(self) -> None:
        super().__init__()
        self.on_read: Callable[[str], None] = lambda uri: None
        self.opened: list[str] = []

    def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
        self.on_read(uri)
        return super().read(uri, start, length, etag=etag)

    def open(self, uri: str, start: int = 0) -> BinaryIO:
        self.opened.append(uri)
        return super().open(uri, start)


def csv_files(store: MemoryStore, count: int, rows: int = 3) -> list[str]:
    for number in range(count):
        store.write(f"memory://d/{number:04}.csv", ("x,y\n" + f"{number},a\n" * rows).encode())
    return [info.uri for info in store.list("memory://d/")]


def parquet(number: int) -> bytes:
    content = io.BytesIO()
    pa.parquet.write_table(pa.table({"x": [number, 2], "y": ["a", None]}), content)
    return content.getvalue()


def array(number: int) -> bytes:
    content = io.BytesIO()
    np.save(content, np.arange(number + 1))
    return content.getvalue()


def records(write: Callable[[Path, list[bytes]], object], folder: Path, number: int) -> bytes:
    write(folder / "records", [b"one", str(number).encode()])
    return (folder / "records").read_bytes()


@pytest.mark.parametrize("extension", ["csv", "csv.gz", "jsonl", "parquet", "npy", "tfrecord", "recordio"])
def test_sources_are_those_of_a_scan_without_fetching(extension: str, tmp_path: Path) -> None:
    contents: dict[str, Callable[[int], bytes]] = {
        "csv": lambda number: f"x,y\n{number},a\n".encode() * (number % 3 + 1),
        "csv.gz": lambda number: gzip.compress(f"x,y\n{number},a\n".encode()),
        "jsonl": lambda number: b'{"x": %d}\n' % number,
        "parquet": parquet,
        "npy": array,
        "tfrecord": lambda number: records(tfrecord.write_records, tmp_path, number),
        "recordio": lambda number: records(recordio.write_records, tmp_path, number),
    }
    store = MemoryStore()
    for number in range(2 * fetching.OBJECTS_MAX):
        store.write(f"memory://d/{number:04}.{extension}", contents[extension](number))
    objects = discover("memory://d", store)
    found, expected = (
        list(scan_ahead(store, objects, OPTIONS, range(len(objects)))),
        list(scan_sources(store, objects, OPTIONS)),
    )
    assert to_bytes([each.index for each in found]) == to_bytes([each.index for each in expected])
    assert [each.found for each in found] == [each.found for each in expected]
    described = [each.found.columns for each in found]
    assert list(columns.columns_of(columns.to_bytes(described))) == described
    assert [each.index.number for each in scan_ahead(store, objects[5:7], OPTIONS, [5, 9])] == [5, 9]


def test_requests_overlap_and_few_are_ahead() -> None:
    store, read = WatchedStore(), list[str]()
    csv_files(store, 3 * fetching.OBJECTS_MAX)
    all_wait = threading.Barrier(fetching.THREADS, timeout=DEADLINE_S)
    objects = discover("memory://d", store)
    first = {data.info.uri for data in objects[: fetching.THREADS]}

    def wait_for_others(uri: str) -> None:
        read.append(uri)
        if uri in first:
            all_wait.wait()

    store.on_read = wait_for_others
    for number, each in enumerate(scan_ahead(store, objects, OPTIONS, range(len(objects)))):
        assert each.index.number == number
        assert len(read) <= number + 1 + fetching.OBJECTS_MAX
    assert len(read) == len(objects)


def test_objects_in_memory_are_bounded_and_large_ones_are_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = WatchedStore(), list[str]()
    uris = csv_files(store, 20)
    large = csv_files(store, 3, rows=1000)
    size = store.info(uris[10]).size_bytes
    monkeypatch.setattr(fetching, "OBJECT_BYTES_MAX", size + 1)
    monkeypatch.setattr(fetching, "BYTES_MAX", 4 * size)
    objects = discover("memory://d", store)
    store.on_read = read.append
    scanned = scan_ahead(store, objects, OPTIONS, range(len(objects)))
    for number in range(len(objects)):
        assert next(scanned).index.number == number
        assert len(read) <= number + 5
    assert store.opened == large[:3]
    assert sorted(read) == uris[3:]


def test_a_changed_object_is_what_a_scan_says_of_it() -> None:
    store = MemoryStore()
    csv_files(store, 3)
    objects = discover("memory://d", store)
    store.write(objects[1].info.uri, b"x,y\n1,a\n")
    with pytest.raises(UserError, match=r"0001\.csv changed while it was being read"):
        list(scan_ahead(store, objects, OPTIONS, range(len(objects))))
    store.delete(objects[0].info.uri)
    with pytest.raises(ObjectNotFoundError, match=r"0000\.csv"):
        list(scan_ahead(store, objects, OPTIONS, range(len(objects))))


def test_an_error_of_the_store_is_raised_in_the_order_of_the_objects() -> None:
    store = WatchedStore()
    csv_files(store, 9)
    objects = discover("memory://d", store)

    def fail(uri: str) -> None:
        if uri in (objects[4].info.uri, objects[7].info.uri):
            raise TransientError(f"no answer: {uri}")

    store.on_read = fail
    scanned = scan_ahead(store, objects, OPTIONS, range(len(objects)))
    assert [next(scanned).index.number for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(TransientError, match=r"0004\.csv"):
        next(scanned)


def test_a_scan_that_ends_early_does_not_wait_for_a_store_that_hangs() -> None:
    store, hangs, answered = WatchedStore(), threading.Event(), list[str]()
    csv_files(store, 9)
    objects = discover("memory://d", store)

    def hang(uri: str) -> None:
        if uri != objects[0].info.uri:
            hangs.wait(DEADLINE_S)
            answered.append(uri)

    store.on_read = hang
    scanned = scan_ahead(store, objects, OPTIONS, range(9))
    assert next(scanned).index.number == 0
    scanned.close()  # type: ignore[attr-defined]  # a generator
    assert answered == []
    hangs.set()


def test_a_fetched_object_is_a_store_of_one() -> None:
    info = ObjectInfo(uri="s3://b/a", size_bytes=2, etag="e")
    store = fetching.FetchedObject(info, b"ab")
    assert store.read("s3://b/a", 1, 1, etag="e") == b"b"
    with pytest.raises(ObjectNotFoundError):
        store.info("s3://b/other")
