"""Data in each store is scanned with and without fetching ahead, and its index is shared by jobs."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.contract.servers.s3 import S3Server
from tests.contract.storage.conftest import Place

from elasticdl.cli.indexing.scanning import scan_in_parallel
from elasticdl.shared.data import PlannedData, ReaderOptions, discover, plan_sources, scan_sources
from elasticdl.shared.data.indices import IndexFile
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.storage import ObjectStore, join, open_store, to_uri


def write_files(store: ObjectStore, folder: str, count: int) -> None:
    for number in range(count):
        store.write(join(folder, f"{number:03}.csv"), f"x,y\n{number},a\n".encode())


def test_scans_that_fetch_ahead_find_what_others_find(place: Place) -> None:
    write_files(place.store, place.uri("data"), 100)
    objects = discover(place.uri("data"), place.store)
    options = ReaderOptions(csv_delimiter=",")
    found = list(scan_in_parallel(place.store, objects, options))
    expected = list(scan_sources(place.store, objects, options))
    assert to_bytes([each.index for each in found]) == to_bytes([each.index for each in expected])
    assert [each.found for each in found] == [each.found for each in expected]


@pytest.fixture(params=["file", "s3"])
def prefix(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in a store that ``open_store`` opens."""
    if request.param == "file":
        return to_uri(tmp_path)
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{request.getfixturevalue('bucket')}/{secrets.token_hex(6)}"


def planned_by_a_job(prefix: str) -> PlannedData:
    store = open_store(prefix)
    data = plan_sources(
        join(prefix, "data"),
        ReaderOptions(),
        store,
        scan=scan_in_parallel,
        shared_folder=join(prefix, "jobs", ".indices"),
    )
    assert data.shared is not None
    assert isinstance(data.indices, IndexFile)
    data.shared.save(data.indices)
    return data


def test_jobs_take_over_the_index_of_former_ones_and_remove_unused_ones(prefix: str) -> None:
    store, folder = open_store(prefix), join(prefix, "jobs", ".indices")
    write_files(store, join(prefix, "data"), 20)
    assert planned_by_a_job(prefix).reused == 0
    (info,) = store.list(folder + "/")
    today = datetime.now(UTC).date()
    store.move(info.uri, info.uri.replace(today.isoformat(), (today - timedelta(days=7)).isoformat()))
    unused = join(folder, f"{'1' * 32}.{today - timedelta(days=91)}.index")
    store.write(unused, b"")
    assert planned_by_a_job(prefix).reused == 20
    assert [each.uri for each in store.list(folder + "/")] == [info.uri], "it has the name of today, and is alone"
    write_files(store, join(prefix, "data"), 21)
    store.write(join(prefix, "data", "003.csv"), b"x,y\n7,b\n8,c\n")
    now = planned_by_a_job(prefix)
    unchanged_files = 0 if prefix.startswith("file:") else 19  # A local file that is written again has another etag.
    assert now.reused == unchanged_files
    alone = plan_sources(join(prefix, "data"), ReaderOptions(), store)
    assert to_bytes(list(now.indices)) == to_bytes(list(alone.indices))
    assert (now.sources, now.schema, now.remarks) == (alone.sources, alone.schema, alone.remarks)
    assert planned_by_a_job(prefix).reused == 21
