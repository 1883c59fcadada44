"""Several processes index what one process indexes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elasticdl.cli.indexing import orders, scanning
from elasticdl.shared.data import DataObject, PlannedData, ReaderOptions, plan_sources
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.storage import open_store

FILES = 150


def plan(folder: Path) -> PlannedData:
    def scan(store: object, objects: list[DataObject], options: ReaderOptions) -> object:
        return scanning.scan_orders(orders.group(objects, options), 2)

    return plan_sources(str(folder), ReaderOptions(), open_store(str(folder)), scan=scan)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"{number:03}.csv").write_text("x,y\n" + f"{number},a\n" * number)
    return tmp_path


def test_the_indices_of_several_processes_are_those_of_one(folder: Path) -> None:
    found, expected = plan(folder), plan_sources(str(folder), ReaderOptions(), open_store(str(folder)))
    assert (found.sources, found.schema) == (expected.sources, expected.schema)
    assert all(one.has_content_of(other) for one, other in zip(found.indices, expected.indices, strict=True))


def test_the_first_wrong_file_is_named(folder: Path) -> None:
    for number in (10, 140):
        (folder / f"{number:03}.csv").write_text("x,y\n1,2,3\n")
    with pytest.raises(UserError, match=r"010\.csv"):
        plan(folder)


def test_a_process_that_crashes_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PermanentError, match="a process that indexes data exited unexpectedly"):
        plan(folder)
