"""A job takes over what a former job's index says of unchanged files; the result is that of reading all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.data import (
    DataObject,
    PlannedData,
    ReaderOptions,
    ScannedSource,
    discover,
    plan_sources,
    scan_sources,
)
from elasticdl.shared.data.indices import IndexFile, IndexLostError, IndexWriter, columns, shared_index
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.data.indices.shared_index import PreviousIndex
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import MemoryStore, ObjectInfo, ObjectStore, open_store, to_uri


class CountedScans:
    """How many files were read from beginning to end."""

    def __init__(self) -> None:
        self.files = 0

    def __call__(
        self, store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int]
    ) -> Iterable[ScannedSource]:
        self.files += len(objects)
        return scan_sources(store, objects, options, numbers)


def planned_by_a_job(folder: Path, **options: object) -> tuple[PlannedData, int]:
    """The data set as a job plans it, which shares what it has indexed, and the number of files that it has read."""
    scans = CountedScans()
    data = plan_sources(
        str(folder / "data"),
        ReaderOptions(**options),  # type: ignore[arg-type]
        open_store(str(folder)),
        scan=scans,
        shared_folder=to_uri(folder / "jobs" / ".indices"),
    )
    if data.shared is not None and isinstance(data.indices, IndexFile):
        data.shared.save(data.indices)
    return data, scans.files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for number in range(5):
        (tmp_path / "data" / f"{number}.csv").write_text(f"a,b\n{number},\n{number},x\n")
    return tmp_path


def test_a_second_job_reads_no_file_to_index_it(folder: Path) -> None:
    first, read = planned_by_a_job(folder)
    again, read_again = planned_by_a_job(folder)
    assert (read, read_again) == (5, 0)
    assert to_bytes(again.indices) == to_bytes(first.indices)
    assert again.sources == first.sources
    assert (again.schema, again.options, again.remarks) == (first.schema, first.options, first.remarks)
    assert (first.reused, again.reused) == (0, 5)
    assert planned_by_a_job(folder, column_types={"a": "float64"})[1] == 5, "other options"
    assert planned_by_a_job(folder)[1] == 0


@pytest.mark.parametrize(("change", "expected"), [("changed", 1), ("added", 1), ("removed", 1), ("replaced", 1)])
def test_only_files_that_changed_are_read_again(folder: Path, change: str, expected: int) -> None:
    planned_by_a_job(folder)
    file = folder / "data" / "3.csv"
    match change:
        case "changed":
            file.write_text("a,b\n7,\n")
        case "added":
            (folder / "data" / "6.csv").write_text("a,b\n6,\n")
        case "removed":  # The file behind it has another number then, and other hashes.
            file.unlink()
        case _:
            other = folder / "other"
            other.write_text(file.read_text().replace("3", "8"))
            other.rename(file)
    now, read = planned_by_a_job(folder)
    assert read == expected
    assert now.reused == len(now.sources) - expected
    assert_is_as_if_all_were_read(folder, now)
    assert planned_by_a_job(folder)[1] == 0
    assert len(list((folder / "jobs" / ".indices").iterdir())) == 1, "the new index has replaced the old one"


def test_a_removed_last_file_leaves_the_others_as_they_are(folder: Path) -> None:
    planned_by_a_job(folder)
    (folder / "data" / "4.csv").unlink()
    now, read = planned_by_a_job(folder)
    assert read == 0
    assert_is_as_if_all_were_read(folder, now)


def assert_is_as_if_all_were_read(folder: Path, now: PlannedData) -> None:
    unshared = plan_sources(str(folder / "data"), ReaderOptions(), open_store(str(folder)))
    assert to_bytes(now.indices) == to_bytes(unshared.indices)
    assert now.sources == unshared.sources
    assert (now.schema, now.options, now.remarks) == (unshared.schema, unshared.options, unshared.remarks)


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_a_damaged_shared_index_is_built_again(folder: Path, damage: bytes | None) -> None:
    planned_by_a_job(folder)
    (shared,) = (folder / "jobs" / ".indices").iterdir()
    content = shared.read_bytes()
    shared.write_bytes(content[:9] + b"?" + content[10:] if damage is None else damage)
    assert planned_by_a_job(folder)[1] == 5
    assert planned_by_a_job(folder)[1] == 0


def test_wrong_data_is_refused_although_an_index_is_shared(folder: Path) -> None:
    planned_by_a_job(folder)
    (folder / "data" / "4.csv").write_text("a,c\n1,2\n")
    with pytest.raises(UserError, match=r"columns differ: .*0\.csv has a, b; .*4\.csv has a, c"):
        planned_by_a_job(folder)


VALUES = ["1", "007", "", "2.5", "x", "9007199254740993", "-3", "18446744073709551615"]


class Outcome(NamedTuple):
    """What a plan says, or why there is none."""

    indices: bytes
    facts: object


def outcome_of(store: ObjectStore, former: PreviousIndex, objects: Sequence[DataObject]) -> tuple[Outcome, IndexFile]:
    options = ReaderOptions(csv_delimiter=",")
    scanned = list(
        former.joined(scan_sources(store, [objects[each] for each in former.changed], options, former.changed))
    )
    with IndexWriter(has_columns=True) as writer:
        for each in scanned:
            writer.add(each.index, each.found.columns)
        file = writer.finish()
    return Outcome(to_bytes(list(file)), [each.found for each in scanned]), file


@given(
    st.lists(
        st.dictionaries(
            st.integers(0, 400), st.lists(st.sampled_from(VALUES), min_size=1, max_size=3), min_size=1, max_size=300
        ),
        min_size=2,
        max_size=4,
    )
)
def test_whatever_changes_sources_are_those_of_scans(states: list[dict[int, list[str]]]) -> None:
    former, known = None, dict[int, DataObject]()
    for state in states:
        store = MemoryStore()
        for number, values in state.items():
            store.write(f"memory://d/{number:03}.csv", "\n".join(["a,b", *(f"{each},1" for each in values)]).encode())
        objects = discover("memory://d", store)
        reused = PreviousIndex(former, objects)
        assert len(reused.changed) == sum(data != known.get(number) for number, data in enumerate(objects))
        now, former = outcome_of(store, reused, objects)
        assert now == outcome_of(store, PreviousIndex(None, objects), objects)[0]
        known = dict(enumerate(objects))


def test_an_index_without_columns_is_not_taken_over() -> None:
    store = MemoryStore()
    store.write("memory://d/a.csv", b"a\n1\n")
    objects = discover("memory://d", store)
    with IndexWriter() as writer:
        for each in scan_sources(store, objects, ReaderOptions(csv_delimiter=",")):
            writer.add(each.index)
        file = writer.finish()
    with pytest.raises(IndexLostError, match="does not describe the columns"):
        PreviousIndex(file, objects)


def test_damaged_columns_are_noticed(folder: Path) -> None:
    planned_by_a_job(folder)
    (shared,) = (folder / "jobs" / ".indices").iterdir()
    content = shared.read_bytes()
    store = open_store(str(folder))
    scanned = scan_sources(store, discover(str(folder / "data"), store), ReaderOptions(csv_delimiter=","))
    place = content.index(columns.to_bytes([each.found.columns for each in scanned])) + 9
    shared.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
    (folder / "data" / "1.csv").write_text("a,b\n7,\n")
    now, read = planned_by_a_job(folder)
    assert read == 5
    assert_is_as_if_all_were_read(folder, now)


def indices_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "jobs" / ".indices").iterdir())


def day(days_ago: int) -> str:
    return (datetime.now(UTC).date() - timedelta(days=days_ago)).isoformat()


def test_an_index_that_is_used_again_has_the_name_of_that_day(folder: Path) -> None:
    planned_by_a_job(folder)
    (name,) = indices_in(folder)
    path = folder / "jobs" / ".indices" / name
    assert name.endswith(f".{day(0)}.index")
    path.rename(path.with_name(name.replace(day(0), day(200))))
    assert planned_by_a_job(folder)[1] == 0
    assert indices_in(folder) == [name]


def test_indices_that_no_job_has_used_for_long_are_removed_and_nothing_else(folder: Path) -> None:
    planned_by_a_job(folder)
    (name,) = indices_in(folder)
    others = folder / "jobs" / ".indices"
    unused, used = f"{'1' * 32}.{day(91)}.index", f"{'2' * 32}.{day(90)}.index"
    own = folder / "jobs" / "job-1" / "index" / f"{'3' * 32}.{day(300)}.index"
    foreign = others / f"notes.{day(300)}.index"
    own.parent.mkdir(parents=True)
    for path in (others / unused, others / used, foreign, own):
        path.write_bytes(b"")
    planned_by_a_job(folder)
    assert (others / unused).exists(), "a job that writes and renames nothing removes nothing"
    (folder / "data" / "0.csv").write_text("a,b\n77,\n")
    planned_by_a_job(folder)
    assert indices_in(folder) == sorted([name, used, foreign.name])
    assert own.exists(), "an index that belongs to a job stays"


def test_what_a_killed_client_was_writing_is_removed_a_day_later(folder: Path) -> None:
    shared = folder / "jobs" / ".indices"
    shared.mkdir(parents=True)
    for name in (".old.partial", ".new.partial"):
        (shared / name).write_bytes(b"")
    os.utime(shared / ".old.partial", (1.0, 1.0))
    planned_by_a_job(folder)
    assert [name for name in indices_in(folder) if name.endswith(".partial")] == [".new.partial"]


class RenamedOnce(MemoryStore):
    """Another client renames an index after this one has listed it."""

    has_renamed = True

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        found = list(super().list(prefix))
        if not self.has_renamed and found and ".indices" in prefix:
            self.has_renamed = True
            self.move(found[0].uri, found[0].uri.replace(day(5), day(0)))
        return iter(found)


def test_an_index_that_another_client_renames_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RenamedOnce()
    monkeypatch.setattr(shared_index, "open_store", lambda _uri: store)
    store.write("memory://d/a.csv", b"a\n1\n")

    def plan() -> PlannedData:
        return plan_sources("memory://d", ReaderOptions(), store, shared_folder="memory://jobs/.indices")

    first = plan()
    assert first.shared is not None
    assert isinstance(first.indices, IndexFile)
    first.shared.save(first.indices)
    (name,) = (info.uri for info in store.list("memory://jobs/"))
    store.move(name, name.replace(day(0), day(5)))
    store.has_renamed = False
    assert plan().reused == 1
    assert store.has_renamed
