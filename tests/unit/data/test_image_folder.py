"""Images and texts in folders: labels from folders, and every file compared with the planning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import DataSchema, PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.formats.files_in_folders import FILES_MAX
from elasticdl.shared.data.indices.block import Block, to_bytes
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore, ObjectStore, open_store

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
FILES = {"cat/1.jpg": JPEG + b"one", "cat/2.jpeg": JPEG + b"two", "dog/1.png": PNG + b"three", "dog/a b.bmp": b"BMx"}


def store_with(files: Mapping[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for name, data in files.items():
        store.write(f"memory://d/{name}", data)
    return store


def reader_of(store: ObjectStore, planned: PlannedData) -> Reader:
    indices = Block(to_bytes(list(planned.indices)))
    return Reader(store=store, sources=planned.sources, schema=planned.schema, index=indices.__getitem__)


def read(store: ObjectStore, planned: PlannedData, start: int, end: int, source: int = 0) -> dict[str, Any]:
    shard, reader = Shard(source=source, start=start, end=end), reader_of(store, planned)
    batch = reader.read(shard).take(range(end - start))
    assert batch.checksum == reader.checksum(shard)
    return {name: values.tolist() for name, values in batch.columns.items()}


def plan(
    store: ObjectStore, paths: str = "memory://d", schema: DataSchema | None = None, **options: Any
) -> PlannedData:
    return plan_sources(paths, ReaderOptions(**options), store, schema=schema)


def test_columns_and_classes() -> None:
    store = store_with(FILES)
    planned = plan(store)
    assert planned.schema.metadata.class_names == ("cat", "dog")
    assert planned.schema.metadata.column_types == ("binary", "int64", "string", "string")
    assert [(source.uri, source.records) for source in planned.sources] == [("memory://d[0:4]", 4)]
    found = read(store, planned, 0, 4)
    assert dict(zip(found["file"], found["image"], strict=True)) == FILES
    assert sorted(zip(found["file"], found["class"], found["label"], strict=True)) == [
        ("cat/1.jpg", "cat", 0),
        ("cat/2.jpeg", "cat", 0),
        ("dog/1.png", "dog", 1),
        ("dog/a b.bmp", "dog", 1),
    ]
    assert read(store, planned, 1, 3) == {name: values[1:3] for name, values in found.items()}


def test_names_of_local_files(tmp_path: Path) -> None:
    for name, data in FILES.items():
        (tmp_path / "ä b" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ä b" / name).write_bytes(data)
    store = open_store(str(tmp_path))
    assert sorted(read(store, plan(store, str(tmp_path / "ä b")), 0, 4)["file"]) == sorted(FILES)
    # The folder of the only class is a part of the name.
    assert read(store, plan(store, str(tmp_path / "ä b" / "dog" / "*.bmp")), 0, 1)["file"] == ["dog/a b.bmp"]


@given(
    names=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 999)), min_size=1, max_size=60, unique=True),
    cut=st.tuples(st.integers(0, 59), st.integers(1, 60)),
)
def test_ranges(names: list[tuple[str, int]], cut: tuple[int, int]) -> None:
    files = {f"{folder}/{number}.jpg": JPEG + str((folder, number)).encode() for folder, number in names}
    store = store_with(files)
    planned = plan(store)
    whole = read(store, planned, 0, len(files))
    assert sorted(whole["file"]) == sorted(files)
    assert whole["image"] == [files[name if "/" in name else f"{name}"] for name in whole["file"]]
    start, end = cut[0] % len(files), min(cut[1], len(files))
    if start < end:
        assert read(store, planned, start, end) == {name: values[start:end] for name, values in whole.items()}


def test_the_order_mixes_classes_and_large_sets_have_several_sources() -> None:
    files = {f"{folder}/{number}.jpg": JPEG + b"%d" % number for folder in "ab" for number in range(FILES_MAX - 100)}
    store = store_with(files)
    planned = plan(store)
    assert [source.records for source in planned.sources] == [FILES_MAX, FILES_MAX - 200]
    labels = read(store, planned, 100, 200, source=1)["label"]
    assert 20 < sum(labels) < 80
    found = [name for number in (0, 1) for name in read(store, planned, 0, FILES_MAX - 200, number)["file"]]
    assert len(set(found)) == 2 * (FILES_MAX - 200)


@pytest.mark.parametrize("change", [JPEG + b"ONE", JPEG + b"one and more", None])
def test_a_changed_file_is_named_when_it_is_read(change: bytes | None) -> None:
    store = store_with(FILES)
    planned = plan(store)
    if change is None:
        store.delete("memory://d/cat/1.jpg")
    else:
        store.write("memory://d/cat/1.jpg", change)
    with pytest.raises(UserError, match=r"memory://d/cat/1.jpg changed since the job was planned"):
        read(store, planned, 0, 4)


def test_validation_data_has_the_labels_of_the_training_data() -> None:
    training = plan(store_with(FILES))
    store = store_with({"dog/9.png": PNG})
    planned = plan(store, schema=training.schema)
    assert read(store, planned, 0, 1)["label"] == [1]
    with pytest.raises(UserError, match=r"cow/9.png is in the folder 'cow', which is no class .* \(cat, dog\)"):
        plan(store_with({"cow/9.png": PNG}), schema=training.schema)


def test_columns_can_be_chosen() -> None:
    store = store_with(FILES)
    assert list(read(store, plan(store, columns=("label", "image")), 0, 4)) == ["label", "image"]
    with pytest.raises(UserError, match="has no column 'labels'"):
        plan(store, columns=("labels",))
    with pytest.raises(UserError, match="--column_types label=string: the column of such files is int64"):
        plan(store, column_types={"label": "string"})


@pytest.mark.parametrize("data", [b"", b"<html>", b"RIFF"])
def test_a_file_that_is_no_image_is_named(data: bytes) -> None:
    with pytest.raises(UserError, match=r"cat/3.jpg is not a JPEG, PNG, GIF or BMP image"):
        plan(store_with(FILES | {"cat/3.jpg": data}))


def test_texts_in_folders() -> None:
    texts = {"bad/1.txt": "schlecht", "good/1.txt": "très bien\r\n", "good/2.txt": ""}
    store = store_with({name: text.encode() for name, text in texts.items()})
    planned = plan(store)
    assert planned.schema.metadata.column_names == ("text", "label", "class", "file")
    assert planned.schema.metadata.column_types == ("string", "int64", "string", "string")
    found = read(store, planned, 0, 3)
    assert dict(zip(found["file"], found["text"], strict=True)) == texts
    assert dict(zip(found["file"], found["label"], strict=True)) == {"bad/1.txt": 0, "good/1.txt": 1, "good/2.txt": 1}
    with pytest.raises(UserError, match=r"bad/2\.txt is not UTF-8: byte 3 is 0xe9"):
        plan(store_with({"bad/2.txt": b"caf\xe9", "good/1.txt": b""}))
    with pytest.raises(UserError, match="mixes formats"):
        plan(store_with({"bad/2.txt": b"", "bad/2.png": PNG}))
