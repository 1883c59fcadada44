"""What ``elasticdl data inspect`` prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elasticdl.cli.commands.inspect_data import inspect_data
from elasticdl.cli.data_flags import DataFlags
from elasticdl.shared.data.formats.tfrecord import write_records
from elasticdl.shared.errors import UserError
from elasticdl.zoo.example_pb2 import Example


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_columns_and_the_first_records(capsys: pytest.CaptureFixture[str]) -> None:
    records = [{"id": 7, "name": "x" * 100, "items": list(range(6))}, {"id": 8, "items": []}]
    Path("a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    inspect_data("a.jsonl", DataFlags(fill_missing="name=none"), samples=2)
    assert capsys.readouterr().out.splitlines() == [
        "a.jsonl: 2 records in 1 file (json), 174 bytes",
        "Columns:",
        "  id: int64",
        "  name: string (1 missing, filled with none)",
        "  items: list<int64>",
        "Record 0:",
        "  id: 7",
        f"  name: '{'x' * 59}...",
        "  items: [0, 1, 2, 3, 4, ... (6 values)]",
        "Record 1:",
        "  id: 8",
        "  name: 'none'",
        "  items: []",
    ]


def test_many_files_are_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(12):
        Path(f"part-{number:02}.csv").write_text("a\n" + "1\n" * number)
    inspect_data(".", DataFlags(), samples=0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ".: 66 records in 12 files (csv), 156 bytes"
    assert [line for line in lines if "part-" in line][-1].split("│")[2].strip() == "9"
    assert [cell.strip() for cell in lines[-4].split("│")[1:4]] == ["and 2 files more", "21", "46 bytes"]
    assert lines[-2:] == ["Columns:", "  a: int64"]


def test_features_of_tfrecords(capsys: pytest.CaptureFixture[str]) -> None:
    example = Example()
    example.features.feature["image"].bytes_list.value.append(b"\xff" * 784)
    example.features.feature["label"].int64_list.value.append(3)
    example.features.feature["name"].bytes_list.value.append(b"cat")
    write_records("a.tfrecord", [example.SerializeToString(), b"\xff\xff"])
    inspect_data("a.tfrecord", DataFlags(), samples=5)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Record 0:",
        "  image: 784 bytes",
        "  label: int64 [3]",
        "  name: bytes [b'cat']",
        "Record 1:",
        "  2 bytes, not a tf.train.Example",
    ]


def test_what_is_wrong_is_named() -> None:
    Path("a.csv").write_text("id,zip\n1,2\n3\n")
    with pytest.raises(UserError, match=r"a\.csv, record 1 .*: it has 1 column instead of 2"):
        inspect_data("a.csv", DataFlags(), samples=1)


def test_arrays(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("a.npz", image=np.arange(8, dtype=np.uint8).reshape(2, 2, 2), name=np.array(["a", "b"]))
    inspect_data("a.npz", DataFlags(), samples=1)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Columns:",
        "  image: uint8[2x2]",
        "  name: string",
        "Record 0:",
        "  image: [[0, 1], [2, 3]]",
        "  name: 'a'",
    ]


def test_images_in_folders(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("cat/1.png", "dog/1.png", "dog/2.png"):
        Path("d", name).parent.mkdir(parents=True, exist_ok=True)
        Path("d", name).write_bytes(b"\x89PNG\r\n\x1a\n")
    inspect_data("d", DataFlags(columns="label,image"), samples=0)
    assert capsys.readouterr().out.splitlines() == [
        "d: 3 records in 3 files (images), 24 bytes",
        "Columns:",
        "  label: int64 (0 is cat, 1 is dog)",
        "  image: binary",
    ]
