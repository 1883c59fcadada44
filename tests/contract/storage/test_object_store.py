"""What every object store has to do; runs against the fake, local files and a real S3 server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.contract.storage.conftest import Place

from elasticdl.shared.storage import ObjectChangedError, ObjectNotFoundError

DATA = bytes(range(256)) * 5


def test_what_is_written_is_read(place: Place) -> None:
    written = place.store.write(place.uri("a"), DATA)
    assert written == place.store.info(place.uri("a"))
    assert (written.uri, written.size_bytes) == (place.uri("a"), len(DATA))
    assert place.store.read(place.uri("a")) == DATA


def test_an_empty_object(place: Place) -> None:
    uri = place.uri("empty")
    assert place.store.write(uri, b"").size_bytes == 0
    assert place.store.read(uri) == b""
    assert place.store.read(uri, 0, 10) == b""
    with place.store.open(uri) as stream:
        assert stream.read() == b""


@pytest.mark.parametrize("start", [0, 1, 700, len(DATA) - 1, len(DATA), len(DATA) + 5])
@pytest.mark.parametrize("length", [None, 0, 1, 300, len(DATA), len(DATA) + 9])
def test_ranges(place: Place, start: int, length: int | None) -> None:
    place.store.write(place.uri("a"), DATA)
    end = None if length is None else start + length
    assert place.store.read(place.uri("a"), start, length) == DATA[start:end]


@pytest.mark.parametrize("start", [0, 3, len(DATA), len(DATA) + 5])
def test_streams_begin_anywhere(place: Place, start: int) -> None:
    place.store.write(place.uri("a"), DATA)
    with place.store.open(place.uri("a"), start) as stream:
        parts = list(iter(lambda: stream.read(100), b""))
    assert b"".join(parts) == DATA[start:]
    assert all(len(part) == 100 for part in parts[:-1])


def test_a_stream_may_be_left_in_the_middle(place: Place) -> None:
    place.store.write(place.uri("big"), bytes(8 << 20))
    for _ in range(20):  # more than the connection pool holds
        with place.store.open(place.uri("big")) as stream:
            assert stream.read(10) == bytes(10)
    assert place.store.info(place.uri("big")).size_bytes == 8 << 20


def test_replacing_changes_the_etag(place: Place) -> None:
    first = place.store.write(place.uri("a"), b"one")
    second = place.store.write(place.uri("a"), b"two")
    assert first.etag != second.etag
    assert place.store.read(place.uri("a")) == b"two"


def test_a_read_asks_for_an_etag(place: Place) -> None:
    written = place.store.write(place.uri("a"), b"one")
    assert place.store.read(place.uri("a"), 1, 2, etag=written.etag) == b"ne"
    assert place.store.read(place.uri("a"), 1, 0, etag=written.etag) == b""
    place.store.write(place.uri("a"), b"two")
    for start, length in ((0, None), (1, 2), (1, 0)):
        with pytest.raises(ObjectChangedError):
            place.store.read(place.uri("a"), start, length, etag=written.etag)
    with pytest.raises(ObjectNotFoundError):
        place.store.read(place.uri("b"), etag=written.etag)


def test_a_local_file_is_written(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = tmp_path_factory.mktemp("source") / "file"
    source.write_bytes(DATA)
    assert place.store.write(place.uri("b"), source) == place.store.info(place.uri("b"))
    assert place.store.read(place.uri("b")) == DATA


def test_a_large_file_is_written(place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = tmp_path_factory.mktemp("source") / "file"
    source.write_bytes(DATA * 10_000)  # above 5 MiB: S3 takes it in parts
    assert place.store.write(place.uri("b"), source) == place.store.info(place.uri("b"))
    assert place.store.read(place.uri("b"), 12_000_000, 256) == DATA[:256]


def test_listing_is_sorted_and_by_plain_prefix(place: Place) -> None:
    for name in ("dir/b", "dir/a/x", "dir/a.txt", "dirt", "other"):
        place.store.write(place.uri(*name.split("/")), name.encode())

    def names(prefix: str) -> list[str]:
        return [info.uri.removeprefix(place.prefix + "/") for info in place.store.list(place.uri() + "/" + prefix)]

    assert names("dir/") == ["dir/a.txt", "dir/a/x", "dir/b"]
    assert names("dir") == ["dir/a.txt", "dir/a/x", "dir/b", "dirt"]
    assert names("dir/a") == ["dir/a.txt", "dir/a/x"]
    assert names("nothing") == []
    assert names("no/such/folder/") == []
    assert [info.size_bytes for info in place.store.list(place.uri("dirt"))] == [4]


def test_names_with_special_characters(place: Place) -> None:
    uri = place.uri("with space", "100%", "ümlaut#1?.csv")
    place.store.write(uri, b"x")
    assert [info.uri for info in place.store.list(place.prefix + "/")] == [uri]
    assert place.store.read(uri) == b"x"


def test_more_objects_than_one_page(place: Place) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: place.store.write(place.uri(f"{number:04}"), b""), range(1003)))
    found = [info.uri for info in place.store.list(place.prefix + "/")]
    assert found == [place.uri(f"{number:04}") for number in range(1003)]


def test_a_missing_object(place: Place, tmp_path: Path) -> None:
    for use in (place.store.info, place.store.read, place.store.open):
        with pytest.raises(ObjectNotFoundError, match="nobody"):
            use(place.uri("nobody"))
    with pytest.raises(ObjectNotFoundError):
        place.store.read(place.uri("nobody"), 0, 0)
    place.store.delete(place.uri("nobody"))


def test_delete(place: Place) -> None:
    place.store.write(place.uri("a"), b"1")
    place.store.delete(place.uri("a"))
    with pytest.raises(ObjectNotFoundError):
        place.store.info(place.uri("a"))
    assert list(place.store.list(place.prefix + "/")) == []


def test_move(place: Place) -> None:
    place.store.write(place.uri("folder/a"), b"1")
    place.store.write(place.uri("b"), b"2")
    place.store.move(place.uri("folder/a"), place.uri("b"))
    assert [info.uri for info in place.store.list(place.prefix + "/")] == [place.uri("b")]
    assert place.store.read(place.uri("b")) == b"1"
    place.store.move(place.uri("b"), place.uri("new/c d"))
    assert place.store.read(place.uri("new/c d")) == b"1"
    with pytest.raises(ObjectNotFoundError, match="nobody"):
        place.store.move(place.uri("nobody"), place.uri("b"))


def test_streams_are_read_line_by_line(place: Place) -> None:
    place.store.write(place.uri("a"), b"one\ntwo\n")
    with place.store.open(place.uri("a")) as stream:
        assert list(stream) == [b"one\n", b"two\n"]


def test_an_object_is_created_once(place: Place) -> None:
    uri = place.uri("folder", "1.json")
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda number: place.store.create(uri, b"%d" % number), range(8)))
    assert created.count(True) == 1
    assert place.store.read(uri) == b"%d" % created.index(True)
    assert not place.store.create(uri, b"other")
    assert [each.uri for each in place.store.list(place.uri("folder") + "/")] == [uri]
    place.store.delete(uri)
    assert place.store.create(uri, b"other")
