"""Exports with tables in Parquet, written from the snapshots of real ps, have the rows that the ps serve."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from tests.unit.ps.example import BATCHES, ROWS_A, ROWS_B, initial_dense, push_of, signature
from tests.unit.ps.job_with_snapshots import job
from tests.unit.ps.jobs import Job, snapshot
from tests.unit.ps.servers import weights
from tests.unit.ps.test_service import until
from tests.unit.ps.test_tracked_tables import MakeJob, make_job, model, train

from elasticdl.ps.snapshots.kept_versions import kept_versions
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.exported import layout
from elasticdl.shared.exported.layout import MARK, bits_for, folder_names
from elasticdl.shared.exported.lookup import TableLookup, open_tables
from elasticdl.shared.exported.reading import is_export, read_dense, read_export, read_table
from elasticdl.shared.exported.writing import TablesExport, delete_tables
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.storage import to_uri
from elasticdl.shared.wire.messages import Floats

__all__ = ["job", "make_job"]

IDS = {"a": np.arange(ROWS_A), "b": np.arange(ROWS_B)}


def export_of(job: Job, of: ModelSignature, dense: Floats) -> TablesExport:
    newest = kept_versions(job.store, job.spec, [job.register(number) for number in range(job.spec.ps)])[0]
    return TablesExport(
        job=job.spec.job,
        signature=of,
        dense=dense,
        parts=[(snapshots[-1][0], partitions) for snapshots, partitions in newest.parts],
        snapshots=job.store,
        adapted=(),
        write_model=Path.touch,
    )


def check_equal(folder: Path, served: tuple[Floats, Floats, Floats], cache: Path) -> None:
    """Every value in the export is that which the ps serve, trained or not."""
    uri = to_uri(folder)
    exported = read_export(uri)
    dense = np.concatenate([values.reshape(-1) for values in read_dense(uri, exported).values()])
    np.testing.assert_array_equal(dense, served[0])
    tables = open_tables(uri, exported, cache)
    np.testing.assert_array_equal(tables["a"].rows(IDS["a"]), served[1])
    np.testing.assert_array_equal(tables["b"].rows(IDS["b"]), served[2])


@pytest.fixture(params=[32 << 20, 64], ids=["one file", "several files"])
def part_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    size = int(request.param)
    monkeypatch.setattr(layout, "PART_BYTES", size)
    return size


def test_an_export_has_the_rows_that_two_ps_serve(job: Job, tmp_path: Path, part_bytes: int) -> None:
    snapshot(job, 10, number=0)  # It builds on earlier ones: a row may be in several objects.
    served = weights(job.client(signature("adam")))
    export_of(job, signature("adam"), served[0]).write(to_uri(tmp_path / "out"))
    check_equal(tmp_path / "out", served, tmp_path / "cache")
    files = [file for file in read_export(to_uri(tmp_path / "out")).tables[0].files if file]
    assert (len(files) > 1) == (part_bytes < 100)
    parts = [pyarrow.parquet.read_table(tmp_path / "out" / file) for file in files]
    assert all(part.column_names == ["id", "vector"] for part in parts)
    ids = [part.column("id").to_pylist() for part in parts]
    assert all(each == sorted(each) for each in ids)
    together = list(chain(*ids))
    assert len(set(together)) == len(together)


@pytest.mark.parametrize("ps", [1, 3])
def test_rows_that_wait_for_their_admission_or_have_expired_have_their_initial_values(
    make_job: MakeJob, tmp_path: Path, ps: int
) -> None:
    job, client, _ = make_job(ps)
    train(client, BATCHES[:9])
    for number in range(ps):
        snapshot(job, 1, number=number)
    train(client, BATCHES[9:])
    for number in range(ps):
        snapshot(job, 2, number=number)
    served = weights(client)
    export_of(job, model(), served[0]).write(to_uri(tmp_path / "out"))
    check_equal(tmp_path / "out", served, tmp_path / "cache")
    trained = {table.name: table.rows for table in read_export(to_uri(tmp_path / "out")).tables}
    assert 0 < trained["a"] < ROWS_A
    assert 0 < trained["b"] < ROWS_B


def test_a_model_that_was_never_trained_can_be_exported(make_job: MakeJob, tmp_path: Path) -> None:
    job, client, _ = make_job(1)
    export_of(job, model(), initial_dense()).write(to_uri(tmp_path / "out"))
    check_equal(tmp_path / "out", weights(client), tmp_path / "cache")


def test_snapshots_that_lack_a_part_of_the_model_are_refused(job: Job, tmp_path: Path) -> None:
    whole = export_of(job, signature("adam"), initial_dense())
    with pytest.raises(PermanentError, match="do not contain all partitions"):
        replace(whole, parts=whole.parts[:1]).write(to_uri(tmp_path / "out"))
    assert not is_export(to_uri(tmp_path / "out"))


def test_an_export_replaces_the_one_before_only_when_it_is_complete(job: Job, tmp_path: Path) -> None:
    snapshot(job, 10, number=0)
    out = tmp_path / "out"
    served = weights(job.client(signature("adam")))
    (out / "saved_model").mkdir(parents=True)
    (out / "saved_model" / "saved_model.pb").touch()
    (out / "model.keras").touch()
    (out / "notes.txt").touch()
    export_of(job, signature("adam"), served[0]).write(to_uri(out))
    first = read_export(to_uri(out)).version
    assert sorted(path.name for path in out.iterdir()) == [MARK, "notes.txt", first]

    client = job.client(signature("adam"))
    client.push(push_of(*BATCHES[3]))
    for number in range(2):
        snapshot(job, 20, number=number)
    newer = export_of(job, signature("adam"), weights(client)[0])

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # All tables are written by then.
        replace(newer, write_model=killed).write(to_uri(out))
    check_equal(out, served, tmp_path / "cache")
    newer.write(to_uri(out))
    check_equal(out, weights(client), tmp_path / "cache")
    assert sorted(path.name for path in out.iterdir()) == [MARK, "notes.txt", read_export(to_uri(out)).version]
    delete_tables(to_uri(out))
    assert [path.name for path in out.iterdir()] == ["notes.txt"]


def _without_table(facts: dict[str, list[object]]) -> None:
    del facts["tables"][0]


def _other_folder(facts: dict[str, list[str]]) -> None:
    facts["adapted"] = ["version-00000000/../../secret"]


@pytest.mark.parametrize("change", [_without_table, _other_folder, lambda facts: facts.pop("signature")])
def test_a_description_that_is_wrong_is_refused(job: Job, tmp_path: Path, change: Callable[[object], None]) -> None:
    export_of(job, signature("adam"), initial_dense()).write(to_uri(tmp_path))
    facts = json.loads((tmp_path / MARK).read_text())
    change(facts)
    (tmp_path / MARK).write_text(json.dumps(facts))
    with pytest.raises(UserError, match=r"export\.json"):
        read_export(to_uri(tmp_path))


def test_a_later_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / MARK).write_text('{"format": 2}')
    with pytest.raises(UserError, match="reads format 1"):
        read_export(to_uri(tmp_path))


def test_a_file_that_is_missing_or_damaged_is_named(job: Job, tmp_path: Path) -> None:
    export_of(job, signature("adam"), initial_dense()).write(to_uri(tmp_path))
    table = read_export(to_uri(tmp_path)).tables[0]
    (file,) = table.files
    (tmp_path / file).write_bytes(b"no Parquet")
    with pytest.raises(UserError, match=r"part-00000\.parquet can't be read"):
        list(read_table(to_uri(tmp_path), table, 4))
    (tmp_path / file).unlink()
    with pytest.raises(UserError, match=r"part-00000\.parquet.* is missing"):
        list(read_table(to_uri(tmp_path), table, 4))


def test_a_lookup_refuses_ids_outside_of_the_table(job: Job, tmp_path: Path) -> None:
    export_of(job, signature("adam"), initial_dense()).write(to_uri(tmp_path / "out"))
    uri = to_uri(tmp_path / "out")
    table = open_tables(uri, read_export(uri), tmp_path / "cache")["a"]
    for wrong in (-1, ROWS_A):
        with pytest.raises(ValueError, match=f"id {wrong} is asked for"):
            table.rows(np.array([0, wrong]))
    assert table.rows(np.empty(0, np.int64)).shape == (0, 4)


def test_a_lookup_without_a_largest_id_refuses_negative_ones() -> None:
    table = replace(signature("adam").tables[0], input_dim=0)
    lookup = TableLookup(table, 1, np.empty(0, np.uint64), np.empty((0, table.width), np.float32))
    with pytest.raises(ValueError, match="table 'a' has no negative ids, and id -3 is asked for"):
        lookup.rows(np.array([1 << 40, -3]))


def test_a_process_that_copies_later_uses_the_files_of_the_one_before(job: Job, tmp_path: Path) -> None:
    export_of(job, signature("adam"), initial_dense()).write(to_uri(tmp_path / "out"))
    uri, cache = to_uri(tmp_path / "out"), tmp_path / "cache"
    exported = read_export(uri)
    expected = open_tables(uri, exported, tmp_path / "other")["a"].rows(IDS["a"])
    cache.mkdir()
    lock = os.open(cache / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with ThreadPoolExecutor() as pool:
        later = pool.submit(open_tables, uri, exported, cache)
        until(lambda: bool(list(cache.glob("*/done"))) or later.done())
        try:
            first = (tmp_path / "other" / exported.version).rename(cache / exported.version).stat().st_ino
        finally:
            os.close(lock)
        np.testing.assert_array_equal(later.result()["a"].rows(IDS["a"]), expected)
    assert sorted(path.name for path in cache.iterdir()) == sorted([exported.version, "lock"])
    assert (cache / exported.version).stat().st_ino == first


def test_files_have_about_the_same_size_whatever_the_size_of_the_table() -> None:
    assert [bits_for(size) for size in (0, 32 << 20, (32 << 20) + 1, 2 << 30, 1 << 60)] == [0, 0, 1, 6, 16]


def test_tables_have_folders_of_safe_and_different_names() -> None:
    assert folder_names(["user", "tower/user", "tower user", "../x", "日"]) == [
        "user", "tower-user", "tower-user-2", "x", "table",
    ]  # fmt: skip
