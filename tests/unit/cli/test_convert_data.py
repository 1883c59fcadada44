"""``elasticdl data convert``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from elasticdl.cli.commands.data import convert
from elasticdl.cli.main import app
from elasticdl.shared.data.formats.tfrecord import write_records
from elasticdl.shared.errors import UserError

RECORDS = [b"", b"a" * 5000, *(b"%d" % number for number in range(3000))]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    write_records("data/a.tfrecord", RECORDS[:1000])
    write_records("data/b.tfrecord", RECORDS[1000:])


@pytest.mark.parametrize("compression", ["snappy", "gzip", "none"])
def test_to_recordio_and_back(compression: str) -> None:
    write_records("whole.tfrecord", RECORDS)
    there = CliRunner().invoke(app, ["data", "convert", "data", "made.recordio", f"--compression={compression}"])
    assert (there.exit_code, "3,002 records" in there.output) == (0, True), there.output
    convert("made.recordio", "back.tfrecord", compression)
    assert Path("back.tfrecord").read_bytes() == Path("whole.tfrecord").read_bytes()


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("data", "made.parquet", "made.parquet does not end with .recordio or .tfrecord"),
        ("data", "made", "made does not end with"),
        ("table.csv", "made.recordio", "table.csv is csv, whose records have columns"),
        ("data", "old.tfrecord", "old.tfrecord exists"),
        ("nothing", "made.recordio", "nothing does not exist"),
        ("damaged.tfrecord", "made.recordio", r"damaged.tfrecord is corrupt: record 0"),
    ],
)
def test_what_is_refused_leaves_nothing(source: str, destination: str, message: str) -> None:
    Path("table.csv").write_text("a\n1\n")
    Path("old.tfrecord").write_bytes(b"old")
    content = bytearray(Path("data/a.tfrecord").read_bytes())
    content[14] ^= 1
    Path("damaged.tfrecord").write_bytes(content)
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    with pytest.raises(UserError, match=message):
        convert(source, destination, "snappy")
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before
