from __future__ import annotations

import gzip
import io
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticdl.shared.data import (
    IndexStore,
    PlannedData,
    ReaderOptions,
    discover,
    plan_sources,
    put,
)
from elasticdl.shared.data.discovery import left_out, would_find
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.storage import MemoryStore, ObjectStore, open_store, to_uri
from elasticdl.shared.storage.tfrecord_frame import frame

FILES = ["b.csv", "a.csv", "sub/c.csv", "sub/deep/d.csv", "_SUCCESS", ".hidden.csv", "_tmp/e.csv", "sub/.git/f.csv"]


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ObjectStore, str]:
    """A store, and a prefix that holds nothing yet; both ways of matching globs."""
    if request.param == "file":
        return open_store(str(tmp_path)), str(tmp_path)
    return MemoryStore(), "s3://bucket/data"


def fill(place: tuple[ObjectStore, str], names: list[str], data: bytes = b"a\n1\n") -> None:
    for name in names:
        place[0].write(to_uri(f"{place[1]}/{name}"), data)


def found(place: tuple[ObjectStore, str], path: str) -> list[str]:
    base = to_uri(place[1]) + "/"
    return [item.info.uri.removeprefix(base) for item in discover(f"{place[1]}{path}", place[0])]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", ["a.csv", "b.csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("/", ["a.csv", "b.csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("/a.csv", ["a.csv"]),
        ("/sub", ["sub/c.csv", "sub/deep/d.csv"]),
        ("/*.csv", ["a.csv", "b.csv"]),
        ("/[!a].csv", ["b.csv"]),
        ("/?.csv", ["a.csv", "b.csv"]),
        ("/*/*.csv", ["sub/c.csv"]),
        ("/**/*.csv", ["a.csv", "b.csv", "sub/c.csv", "sub/deep/d.csv"]),
        ("/su*", ["sub/c.csv", "sub/deep/d.csv"]),
        ("/_tmp/e.csv", ["_tmp/e.csv"]),
    ],
)
def test_files_folders_and_globs(place: tuple[ObjectStore, str], path: str, names: list[str]) -> None:
    fill(place, FILES)
    assert found(place, path) == names
    given = f"{place[1]}{path}"
    assert sorted(name for name in FILES if would_find(given, to_uri(f"{place[1]}/{name}"))) == names


def test_neither_the_folder_beside_the_data_nor_another_store_is_found() -> None:
    for path in ("/data", "/data/", "/data/*.csv"):
        assert not would_find(path, to_uri("/data2/a.csv"))
        assert not would_find(path, "s3://data/a.csv")


def test_names_with_glob_characters_and_spaces(place: tuple[ObjectStore, str]) -> None:
    fill(place, ["x[1]/a b%20.csv"])
    assert len(found(place, "/x[1]")) == len(found(place, "/x[1]/a b%20.csv")) == 1


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        ([], "/nothing", "/nothing does not exist"),
        (["a.csv"], "/a.csv.old", "does not exist"),
        (["a.csv"], "/*.parquet", "there is no data file in"),
        (["_x.csv"], "", "there is no data file in"),
        (["a.csv", "b.tfrecord"], "", r"mixes formats: .*/a\.csv is csv, .*/b\.tfrecord is tfrecord"),
        (["a.csv", "README.md"], "", r"README\.md is not a supported data file"),
        (["a.csv.zst"], "/a.csv.zst", r"a\.csv\.zst is compressed with a method that can't be read"),
        (["a.parquet.gz"], "", r"a\.parquet\.gz is a Parquet file in a gzip file"),
    ],
)
def test_what_is_refused(place: tuple[ObjectStore, str], names: list[str], path: str, message: str) -> None:
    fill(place, names)
    with pytest.raises(UserError, match=message):
        found(place, path)


def test_several_paths_in_their_order(place: tuple[ObjectStore, str]) -> None:
    fill(place, ["b.csv", "a.csv", "sub/c.csv", "sub/x,y.csv"])
    base = place[1]
    assert found(place, f"/sub/c.csv,{base}/b.csv, {base}/a*") == ["sub/c.csv", "b.csv", "a.csv"]
    with pytest.raises(UserError, match=r"sub/c\.csv is given twice"):
        found(place, f"/sub,{base}/sub/c.csv")
    with pytest.raises(UserError, match="nothing does not exist"):
        found(place, f"/a.csv,{base}/nothing")


def test_a_comma_in_the_name_of_a_local_file(tmp_path: Path) -> None:
    place = open_store(str(tmp_path)), str(tmp_path)
    fill(place, ["x,y.csv"])
    assert len(found(place, "/x,y.csv")) == 1


def test_tab_separated_values() -> None:
    store = MemoryStore()
    store.write("memory://d/a.tsv", b"a,1\tb\n1\tx,y\n")
    planned = plan_sources("memory://d", ReaderOptions(), store)
    assert (planned.schema.metadata.column_names, planned.schema.csv_delimiter) == (("a,1", "b"), "\t")
    assert plan_sources("memory://d", ReaderOptions(csv_delimiter=","), store).schema.csv_delimiter == ","
    store.write("memory://d/b.csv", b"a,b\n1,2\n")
    with pytest.raises(UserError, match=r"a\.tsv is tsv, memory://d/b\.csv is csv"):
        plan_sources("memory://d", ReaderOptions(), store)


def parquet_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("part-00000", b"a,b\n1,2\n", "csv"),
        ("part-00000", frame(b"x"), "tfrecord"),
        ("part-00000", parquet_bytes(pa.table({"a": [1]})), "parquet"),
        ("train.tfrecord-00000-of-00010", b"", "tfrecord"),
        ("A.TFRECORDS", b"", "tfrecord"),
        ("a.snappy.parquet", b"", "parquet"),
        ("a.csv.gz", b"", "csv"),
        ("train.tfrecord-00000-of-00010.gz", b"", "tfrecord"),
        ("part-00000.gz", gzip.compress(b"a,b\n1,2\n", mtime=0), "csv"),
    ],
)
def test_formats(name: str, data: bytes, kind: str) -> None:
    store = MemoryStore()
    store.write(f"memory://{name}", data)
    assert [item.format for item in discover(f"memory://{name}", store)] == [kind]


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b"\x1f\x8b rest"])
def test_content_of_an_unknown_format(data: bytes) -> None:
    store = MemoryStore()
    store.write("memory://part-0", data)
    with pytest.raises(UserError, match=r"part-0 has no extension, and its content is of no known format"):
        discover("memory://part-0", store)


@pytest.mark.parametrize("column", [pa.array([[[1]]]), pa.array([{"x": 1}]), pa.array([1], pa.decimal128(5))])
def test_parquet_columns_that_can_not_be_read(column: pa.Array) -> None:
    store = MemoryStore()
    store.write("memory://a.parquet", parquet_bytes(pa.table({"fine": [1], "odd": column})))
    with pytest.raises(UserError, match=r"a\.parquet: column 'odd' has type .*, which can't be read"):
        plan_sources("memory://a.parquet", ReaderOptions(), store)


@pytest.mark.parametrize("keep", [0, 3, 100, -1])
def test_truncated_parquet(keep: int) -> None:
    store = MemoryStore()
    store.write("memory://a.parquet", parquet_bytes(pa.table({"a": list(range(100))}))[:keep])
    with pytest.raises(UserError, match=r"a\.parquet is not a complete Parquet file"):
        plan_sources("memory://a.parquet", ReaderOptions(), store)


def test_parquet_types_over_several_files() -> None:
    store = MemoryStore()
    store.write("memory://d/1.parquet", parquet_bytes(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]})))
    store.write("memory://d/2.parquet", parquet_bytes(pa.table({"a": pa.array([1, 2], pa.int64()), "b": ["x", "y"]})))
    schema = plan_sources("memory://d", ReaderOptions(), store).schema
    assert schema.metadata.column_types == ("int64", "string")
    store.write("memory://d/3.parquet", parquet_bytes(pa.table({"a": ["x"], "b": ["x"]})))
    with pytest.raises(UserError, match=r"column 'a' is string in memory://d/3\.parquet and int64 in the files"):
        plan_sources("memory://d", ReaderOptions(), store)


def test_a_saved_index_is_that_of_the_data_as_it_was() -> None:
    store = MemoryStore()
    uri = store.write("memory://d/a.csv", b"a\n1\n").uri

    def saved_for(data: PlannedData) -> IndexStore:
        return IndexStore(store, "memory://run/index", data.sources, data.options)

    first = plan_sources("memory://d", ReaderOptions(), store)
    saved_for(first).save(first.indices)
    kept = list(store.list("memory://run/index"))
    assert len(kept) == 1
    assert saved_for(first).load(0).total == first.indices[0].total
    saved_for(first).save(plan_sources("memory://d", ReaderOptions(), store).indices)
    assert [info.uri for info in store.list("memory://run/index")] == [info.uri for info in kept]
    store.write(uri, b"a\n1\n2\n")
    changed = plan_sources("memory://d", ReaderOptions(), store)
    missing = r"the index of memory://d/a\.csv is not in memory://run/index"
    for data in (changed, first._replace(options=replace(first.options, csv_delimiter="|"))):
        with pytest.raises(PermanentError, match=missing):
            saved_for(data).load(0)


def test_the_data_folder_is_left_as_it_was(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    (data / "a.csv").write_bytes(b"a\n1\n")
    store = open_store(str(tmp_path))
    planned = plan_sources(str(data), ReaderOptions(), store)
    IndexStore(store, to_uri(run), planned.sources, planned.options).save(planned.indices)
    assert [path.name for path in data.iterdir()] == ["a.csv"]
    assert len(list(run.iterdir())) == 1


def test_put_copies_files_and_folders(tmp_path: Path) -> None:
    for name in ("d/a.csv", "d/sub/b c.csv", "d/.hidden", "d/_tmp/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    store = MemoryStore()
    seen: list[str] = []
    put(tmp_path / "d", "s3://bucket/x/", store, progress=lambda info: seen.append(info.uri))
    assert seen == ["s3://bucket/x/a.csv", "s3://bucket/x/sub/b c.csv"]
    assert store.read(seen[1]) == b"d/sub/b c.csv"
    assert [info.uri for info in put(tmp_path / "d/a.csv", "s3://bucket/y.csv", store)] == ["s3://bucket/y.csv"]
    assert [info.uri for info in put(tmp_path / "d/a.csv", "s3://bucket/z/", store)] == ["s3://bucket/z/a.csv"]
    with pytest.raises(UserError, match="there is nothing to copy at"):
        put(tmp_path / "nothing", "s3://bucket/", store)
    with pytest.raises(UserError, match="the path of the data is empty"):
        put("", "s3://bucket/", store)


@pytest.mark.parametrize("paths", ["", ",", " , "])
def test_no_path_is_refused(paths: str) -> None:
    with pytest.raises(UserError, match="the path of the data is empty"):
        discover(paths, MemoryStore())


def test_a_link_that_leads_nowhere_is_named_unless_it_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "a.csv").write_text("a\n1\n")
    (tmp_path / "data" / ".#lock").symlink_to("nobody@nowhere")
    assert len(discover(str(tmp_path / "data"), open_store(str(tmp_path)))) == 1
    (tmp_path / "data" / "sub" / "b.csv").symlink_to("/nowhere/b.csv")
    with pytest.raises(UserError, match=r"b\.csv is a link to /nowhere/b\.csv, which does not exist"):
        discover(str(tmp_path / "data"), open_store(str(tmp_path)))


def test_a_named_pipe_is_named(tmp_path: Path) -> None:
    pipe = tmp_path / "a.csv"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "*.csv"):
        with pytest.raises(UserError, match=r"a\.csv is a named pipe \(FIFO\), not a file"):
            discover(str(path), open_store(str(tmp_path)))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_an_archive_under_the_name_of_a_text_file_is_named(name: str) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("inside.csv", "a\n1\n")
    store = MemoryStore()
    store.write(f"memory://d/{name}", content.getvalue())
    with pytest.raises(UserError, match=rf"{name} is a zip archive") as refused:
        plan_sources("memory://d", ReaderOptions(), store)
    assert "LATIN1" not in str(refused.value)


def test_a_second_link_to_a_folder_is_said_to_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("a\n1\n")
    (tmp_path / "data" / "sub").mkdir()
    (tmp_path / "data" / "sub" / "b.csv").write_text("a\n2\n")
    (tmp_path / "data" / "sub2").symlink_to(tmp_path / "data" / "sub")
    data = tmp_path / "data"
    uris = [item.info.uri for item in discover(str(data), open_store(str(data)))]
    assert uris == [to_uri(data / "a.csv"), to_uri(data / "sub" / "b.csv")]
    assert [*left_out(str(data), uris, ["a"])] == [
        f"{data}/sub2 is skipped: {data}/sub is read already under another name."
    ]


def test_folders_of_partitions_are_said_to_be_no_columns() -> None:
    uris = ["s3://b/year=2026/month=1/a.parquet", "s3://b/year=2026/month=2/x=y.parquet"]
    assert [*left_out("s3://b", uris, ["month"])] == [
        "The folders year=... are not read as columns. If the model needs this value, write it into the files."
    ]
    assert [*left_out("s3://b", uris, ["month", "year"])] == []


@pytest.mark.parametrize("path", ["", "/*.csv", "/\udcff.csv"])
def test_a_name_that_is_not_utf8_is_refused(path: str, tmp_path: Path) -> None:
    (tmp_path / "\udcff.csv").write_text("a\n1\n")
    with pytest.raises(UserError, match=r"the name of /.*/\\xff\.csv is not UTF-8"):
        discover(f"{tmp_path}{path}", open_store(str(tmp_path)))
