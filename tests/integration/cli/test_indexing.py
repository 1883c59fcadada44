"""Several processes index what one process indexes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.indexing import scanning
from elasticdl.shared.data import (
    DataObject,
    PlannedData,
    ReaderOptions,
    ScannedSource,
    discover,
    plan_sources,
    scan_sources,
)
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.storage import ObjectStore, open_store

FILES = 150


def plan(folder: Path) -> PlannedData:
    def scan(
        store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int]
    ) -> Iterable[ScannedSource]:
        return scanning.scan_requests(store, scanning.requests_of(store, objects, options, numbers), 2)

    return plan_sources(str(folder), ReaderOptions(), open_store(str(folder)), scan=scan)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"{number:03}.csv").write_text("x,y\n" + f"{number},a\n" * number)
    return tmp_path


def test_the_indices_of_several_processes_are_those_of_one(folder: Path) -> None:
    found, expected = plan(folder), plan_sources(str(folder), ReaderOptions(), open_store(str(folder)))
    assert (found.sources, found.schema) == (expected.sources, expected.schema)
    assert all(one.has_content_of(other) for one, other in zip(found.indices, expected.indices, strict=True))


def test_some_files_keep_their_numbers_in_the_data_set(folder: Path) -> None:
    store, options = open_store(str(folder)), ReaderOptions(csv_delimiter=",")
    objects = discover(str(folder), store)
    numbers = [number for number in range(FILES) if number % 3]
    requests = scanning.requests_of(store, [objects[number] for number in numbers], options, numbers)
    found = list(scanning.scan_requests(store, requests, 2))
    expected = list(scan_sources(store, objects, options))
    assert [each.index.number for each in found] == numbers
    for each in found:
        assert to_bytes([each.index]) == to_bytes([expected[each.index.number].index])


def test_the_first_wrong_file_is_named(folder: Path) -> None:
    for number in (10, 140):
        (folder / f"{number:03}.csv").write_text("x,y\n1,2,3\n")
    with pytest.raises(UserError, match=r"010\.csv"):
        plan(folder)


def test_a_process_that_crashes_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PermanentError, match="a process that indexes data exited unexpectedly"):
        plan(folder)


@pytest.mark.parametrize("bad_line", [0, 300_000])
def test_processes_scan_a_large_file_in_ranges(tmp_path: Path, bad_line: int) -> None:
    lines = [f'{number},"a ""text"" with\na line break",{number / 7}' for number in range(400_000)]
    if bad_line:
        lines[bad_line] = "1,2"
    (tmp_path / "b.csv").write_text("\n".join(["number,text,part", *lines]))
    for name in ("a", "c"):
        (tmp_path / f"{name}.csv").write_text("number,text,part\n1,x,2\n")
    store, options = open_store(str(tmp_path)), ReaderOptions(csv_delimiter=",")
    objects = discover(str(tmp_path), store)
    requests = scanning.requests_of(store, objects, options, range(3), 4 << 20)
    assert sum(1 for request in requests if request.part is not None) >= 2
    if bad_line:
        with pytest.raises(UserError) as alone:
            list(scan_sources(store, objects, options))
        with pytest.raises(UserError) as together:
            list(scanning.scan_requests(store, requests, 2))
        assert str(together.value) == str(alone.value)
        assert f"record {bad_line} " in str(together.value)
        return
    for one, other in zip(
        scanning.scan_requests(store, requests, 2), scan_sources(store, objects, options), strict=True
    ):
        assert one.found == other.found
        assert to_bytes([one.index]) == to_bytes([other.index])


def test_few_requests_are_ahead_of_the_results_that_were_taken() -> None:
    taken: list[int] = []

    def requests() -> Iterator[Any]:
        for number in range(100):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(2) as threads:
        results = scanning._in_order(threads, lambda request: request, requests(), window=4)
        assert next(results) == 0
        assert len(taken) == 4
        assert list(results) == list(range(1, 100))
