"""The indices of many sources in one file: what is read is what was written, in parts, and damage is noticed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import (
    IndexStore,
    PlannedData,
    ReaderOptions,
    SourceIndex,
    plan_sources,
)
from elasticdl.shared.data.indices import IndexLostError, PackedIndices, pack
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.job.sources import Source
from elasticdl.shared.storage import MemoryStore, ObjectStore, open_store, to_uri


def index_of(number: int, marks: int = 2, files: tuple[str, ...] = ()) -> SourceIndex:
    uri = f"memory://data/{number:07}.csv"
    return SourceIndex(
        number=number,
        source=Source(uri=uri, size_bytes=number * 7, etag=f"{number:032x}", records=(marks - 1) * 256),
        names=("x", "y") if number % 3 else (),
        marks=np.arange(marks, dtype=np.int64) * 256,
        positions=np.arange(marks, dtype=np.int64) * 1000 + number,
        sums=np.random.default_rng(number).integers(0, 1 << 64, marks, dtype=np.uint64),
        files=files,
    )


class CountedReads:
    """The content of a file, and the ranges of it that were read."""

    def __init__(self, indices: Sequence[SourceIndex]) -> None:
        file = pack(indices)
        self.content = file.path.read_bytes()
        self.reads: list[int] = []

    def read(self, begin: int, length: int) -> bytes:
        self.reads.append(length)
        return self.content[begin : begin + length]

    def open(self) -> PackedIndices:
        return PackedIndices(self.read, len(self.content), "the index")


@given(
    st.lists(st.tuples(st.integers(1, 40), st.lists(st.text(max_size=9), max_size=3).map(tuple)), max_size=600),
    st.randoms(use_true_random=False),
)
def test_each_index_is_what_was_written(facts: list[tuple[int, tuple[str, ...]]], random: object) -> None:
    indices = [index_of(number, marks, files) for number, (marks, files) in enumerate(facts)]
    packed = pack(indices, {"of": "all"})
    assert packed.facts == {"of": "all"}
    assert len(packed) == len(indices)
    order = list(range(len(indices)))
    random.shuffle(order)  # type: ignore[attr-defined]
    for number in order:
        assert to_bytes([packed[number]]) == to_bytes([indices[number]])
    assert [index.source for index in packed] == [index.source for index in indices]
    assert [index.number for index in packed[-2:]] == list(range(len(indices)))[-2:]
    with pytest.raises(IndexError):
        packed[len(indices)]


def test_only_the_part_that_is_needed_is_read() -> None:
    file = CountedReads([index_of(number) for number in range(20_000)])
    packed = file.open()
    assert packed[12_345].source.uri == "memory://data/0012345.csv"
    assert packed[12_346].number == 12_346
    assert len(file.reads) <= 3, "the directory, and a block that has both"
    assert sum(file.reads) < len(file.content) / 4


def test_large_indices_are_read_alone_and_not_all_kept() -> None:
    marks = 1 << 17  # 3 MiB each
    file = CountedReads([index_of(number, marks) for number in range(24)])
    packed = file.open()
    opened = len(file.reads)
    for number in range(24):
        assert packed[number].number == number
    assert len(file.reads) == opened + 24
    assert packed[23].number == 23
    assert len(file.reads) == opened + 24, "the last ones are kept"
    assert packed[0].number == 0
    assert len(file.reads) == opened + 25, "the first ones are not"


@pytest.mark.parametrize("place", ["start", "middle", "end", "cut"])
def test_damage_is_noticed(place: str) -> None:
    file = CountedReads([index_of(number) for number in range(1000)])
    size = len(file.content)
    if place == "cut":
        file.content = file.content[: size // 2]
    else:
        at = {"start": 40, "middle": size // 2, "end": size - 3}[place]
        file.content = file.content[:at] + bytes([file.content[at] ^ 0xFF]) + file.content[at + 1 :]
    with pytest.raises(IndexLostError, match="the index is damaged"):
        list(file.open())


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ObjectStore, str]:
    if request.param == "file":
        return open_store(str(tmp_path)), to_uri(tmp_path)
    return MemoryStore(), "memory://place"


def saved_for(place: tuple[ObjectStore, str], data: PlannedData) -> IndexStore:
    return IndexStore(place[0], f"{place[1]}/index", data.sources, data.options)


def test_the_indices_of_a_data_set_are_one_object(place: tuple[ObjectStore, str]) -> None:
    store, uri = place
    for number in range(300):
        store.write(f"{uri}/data/{number:03}.csv", f"a\n{number}\n".encode())
    data = plan_sources(f"{uri}/data", ReaderOptions(), store)
    saved_for(place, data).save(data.indices)
    (found,) = store.list(f"{uri}/index/")
    again = saved_for(place, data)
    assert again.load(299).total == data.indices[299].total
    assert to_bytes(again.load_all()) == to_bytes(data.indices)
    store.write(found.uri, store.read(found.uri)[:-9])
    with pytest.raises(PermanentError, match=r"000\.csv and 299 more, .*\.index, is damaged"):
        saved_for(place, data).load(0)
    store.delete(found.uri)
    with pytest.raises(PermanentError, match=r"the index of .*000\.csv and 299 more is not in .*index"):
        saved_for(place, data).load(0)


def test_an_index_that_is_deleted_while_it_is_read_is_lost(place: tuple[ObjectStore, str]) -> None:
    store, uri = place
    store.write(f"{uri}/data/a.csv", b"a\n1\n")
    data = plan_sources(f"{uri}/data", ReaderOptions(), store)
    saved = saved_for(place, data)
    saved.save(data.indices)
    saved.load_all()
    store.delete(next(iter(store.list(f"{uri}/index/"))).uri)
    with pytest.raises(IndexLostError, match="was deleted"):
        saved.load(0)


def test_a_full_disk_of_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda: full)
        with pytest.raises(
            PermanentError, match=r"index of the data can't be written to .*: No space left on device\."
        ):
            plan_sources(str(tmp_path), ReaderOptions(), open_store(str(tmp_path)))
