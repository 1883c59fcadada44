from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elasticdl.shared.data import ReaderOptions, scan_source
from elasticdl.shared.data.formats import tfrecord
from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import MemoryStore
from elasticdl.shared.storage.tfrecord_frame import frame

RECORDS = [b"one", b"", b"three" * 3]
FILE = b"".join(map(frame, RECORDS))


def records_in(data: bytes) -> int:
    store = MemoryStore()
    info = store.write("memory://a.tfrecord", data)
    source = DataObject(info=info, format="tfrecord")
    return scan_source(store, source, 0, ReaderOptions()).found.records


def test_a_frame_as_tensorflow_writes_it() -> None:
    # tf.io.TFRecordWriter(path).write(b"hello")
    assert frame(b"hello").hex() == "0500000000000000eab2043e68656c6c6fbb1f1c19"


def test_whole_files() -> None:
    assert records_in(FILE) == 3
    assert records_in(frame(b"")) == 1
    assert records_in(b"") == 0


@pytest.mark.parametrize("size", range(1, len(FILE)))
def test_truncation_at_every_byte(size: int) -> None:
    ends = [len(b"".join(map(frame, RECORDS[:number]))) for number in range(4)]
    if size in ends:
        assert records_in(FILE[:size]) == ends.index(size)
        return
    record = max(number for number in range(3) if ends[number] <= size)
    with pytest.raises(UserError, match=rf"a\.tfrecord is truncated: record {record} .* at byte {ends[record]} "):
        records_in(FILE[:size])


@pytest.mark.parametrize("place", range(len(FILE)))
def test_a_flipped_bit_anywhere_is_noticed(place: int) -> None:
    data = bytearray(FILE)
    data[place] ^= 4
    ends = [len(b"".join(map(frame, RECORDS[:number]))) for number in range(4)]
    record = max(number for number in range(3) if ends[number] <= place)
    with pytest.raises(UserError, match=rf"record {record} \(from 0\) at byte {ends[record]}: the checksum"):
        records_in(bytes(data))


def test_gzip_is_refused_with_a_hint() -> None:
    with pytest.raises(UserError, match="compressed with gzip"):
        records_in(gzip.compress(FILE))


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.tfrecord"
    assert tfrecord.write_records(path, iter(RECORDS)) == 3
    assert path.read_bytes() == FILE

    def failing() -> object:
        yield b"x"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        tfrecord.write_records(path, failing())  # type: ignore[arg-type]
    assert path.read_bytes() == FILE
    assert [file.name for file in path.parent.iterdir()] == ["a.tfrecord"]
