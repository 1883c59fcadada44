"""Groups of files for the processes that index them, and what such a process answers."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.cli.indexing.__main__ import serve
from elasticdl.cli.indexing.scanning import GROUP_BYTES_MAX, GROUP_FILES_MAX, group
from elasticdl.shared.data import DataObject, ReaderOptions, discover, plan_sources, scan_sources
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, open_store


@given(st.lists(st.integers(0, GROUP_BYTES_MAX * 2), max_size=3 * GROUP_FILES_MAX))
def test_groups_are_all_files_in_their_order(sizes: list[int]) -> None:
    objects = [
        DataObject(info=ObjectInfo(uri=f"file:///{number}.csv", size_bytes=size, etag=""), format="csv")
        for number, size in enumerate(sizes)
    ]
    requests = group(objects, ReaderOptions(), range(len(objects)))
    assert [data for request in requests for data in request.objects] == objects
    assert [request.numbers[0] for request in requests] == [objects.index(request.objects[0]) for request in requests]
    for request in requests:
        assert len(request.objects) <= GROUP_FILES_MAX
        assert len(request.objects) == 1 or sum(data.info.size_bytes for data in request.objects) <= GROUP_BYTES_MAX


def test_a_process_answers_with_sources_or_an_error(tmp_path: Path) -> None:
    for name, text in (("a", "x\n1\n"), ("b", "x\n2\n"), ("c", "x\n3,4\n")):
        (tmp_path / f"{name}.csv").write_text(text)
    store = open_store(str(tmp_path))
    options = ReaderOptions(csv_delimiter=",", column_types={"x": "string"})
    objects = discover(str(tmp_path), store)
    requests = [*group(objects[:2], options, [0, 1]), *group(objects[2:], options, [2])]
    results = io.BytesIO()
    serve(io.BytesIO(b"".join(pickle.dumps(request) for request in requests)), results)
    results.seek(0)
    first, error = pickle.load(results), pickle.load(results)
    for one, other in zip(first, scan_sources(store, objects[:2], options), strict=True):
        assert (one.found, one.index.source) == (other.found, other.index.source)
        assert one.index.has_content_of(other.index)
    assert isinstance(error, UserError)
    assert "c.csv" in str(error)
    assert error.hint


def test_what_scans_is_given_all_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"x\n{name}\n")
    store = open_store(str(tmp_path))
    planned = plan_sources(str(tmp_path), ReaderOptions(), store, scan=lambda *facts: list(scan_sources(*facts)))
    assert [source.records for source in planned.sources] == [1, 1]
