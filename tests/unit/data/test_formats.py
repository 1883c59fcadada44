"""A format is one object in the registry: nothing else knows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from elasticdl.shared.data import DataObject, Reader, ReaderOptions, plan_sources
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import PositionFormat, Scan
from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.hashing import content_hashes
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import FORMATS as HELP
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import MemoryStore, ObjectStore

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 4


class _FixedScan(Scan):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[Segment]:
        records, end = FIXED.records(self._data, "", 0, 0), len(self._data)
        yield Segment(contents=content_hashes(records), positions=np.arange(0, end, WIDTH), end=end)


class _Fixed(PositionFormat):
    """Records of four bytes."""

    name = "fixed"
    title = "Fixed width"
    extensions = ("fixed",)
    has_columns = False

    def begins(self, start: bytes) -> bool:
        return start.startswith(b"\0FIX")

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        return _FixedScan(store.read(data.info.uri))

    def records(self, data: bytes, uri: str, record: int, position: int) -> list[bytes]:
        return [data[begin : begin + WIDTH] for begin in range(0, len(data), WIDTH)]


FIXED = _Fixed()


@pytest.mark.parametrize("name", ["a.fixed", "part-0"])
def test_a_format_is_added_by_one_object(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, FIXED.name, FIXED)
    store = MemoryStore()
    store.write(f"memory://d/{name}", b"\0FIX" + b"".join(b"%04d" % number for number in range(1, 1000)))
    planned = plan_sources("memory://d", ReaderOptions(), store)
    reader = Reader(store=store, sources=planned.sources, schema=planned.schema, index=planned.indices.__getitem__)
    block = reader.read_all([Shard(source=0, start=0, end=2), Shard(source=0, start=300, end=302)])
    assert block.lines == [b"\0FIX", b"0001", b"0300", b"0301"]
    with pytest.raises(UserError, match=r"--columns has no effect on .*, because Fixed width has no columns"):
        plan_sources("memory://d", ReaderOptions(columns=("x",)), store)


def test_help_text_and_documentation_name_all_formats() -> None:
    page = (ROOT / "docs/data.md").read_text()
    for each in FORMATS.values():
        assert each.title in HELP
        assert each.title in page.replace("Images", "images")
        for extension in each.extensions:
            assert f"`.{extension}`" in page


def test_an_extension_is_of_one_format() -> None:
    extensions = [extension for each in FORMATS.values() for extension in each.extensions]
    assert len(extensions) == len(set(extensions))


def test_only_formats_know_formats() -> None:
    """Other code asks a format for what it needs to know, and never which format it is."""
    wrong = ("data.format == 'csv'", "data_format in ('csv', other)", "schema.format != json_lines.FORMAT.name")
    assert len([*_comparisons("", "\n".join(wrong))]) == len(wrong)
    found: list[str] = []
    for folder in ("shared", "client", "services"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.parent != ROOT / "shared/elasticdl/shared/data/formats":
                found += _comparisons(str(path.relative_to(ROOT)), path.read_text())
    assert found == []


def _comparisons(path: str, text: str) -> Iterator[str]:
    """Comparisons of formats with names of formats, and with their objects."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = {part for side in sides for part in _names(side)}
            if any(ast.unparse(side).endswith("format") for side in sides) and names & {*FORMATS, "FORMAT"}:
                yield f"{path}:{node.lineno}"
        elif isinstance(node, ast.Match) and ast.unparse(node.subject).endswith("format"):
            yield f"{path}:{node.lineno}"


def _names(side: ast.expr) -> Iterator[str]:
    for node in ast.walk(side):
        if isinstance(node, ast.Constant):
            yield str(node.value)
        elif isinstance(node, ast.Attribute):
            yield node.attr
