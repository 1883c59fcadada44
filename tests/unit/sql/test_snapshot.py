"""Snapshots: neither the rows of a side nor their order depend on the order in which the database gives them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.sql.statements_for_tests import prepare, statement

from elasticdl.shared.errors import UserError
from elasticdl.sql.snapshot import Snapshot, Split, write

ROWS = pa.table({"a": list(range(200)), "user": [number % 20 for number in range(200)], "c": ["x", "y", "y", "y"] * 50})


def snapshot(folder: Path, rows: pa.Table, name: str = "rows.parquet") -> Snapshot:
    return write(rows.to_batches(), rows.schema, folder / name)


def part(folder: Path, rows: pa.Table, split: Split, *, validation: bool) -> pa.Table:
    whole = snapshot(folder, rows)
    side = whole.part(folder / "part.parquet", split, validation=validation)
    whole.close()
    side.close()
    return pq.read_table(side.file)


@pytest.mark.parametrize(
    "split", [Split(), Split(share=0.2), Split(share=0.3, by=("user",)), Split(share=0.2, stratify="c")]
)
def test_the_order_of_rows_does_not_matter(tmp_path: Path, split: Split) -> None:
    reverse = ROWS.take(list(reversed(range(200))))
    assert part(tmp_path, ROWS, split, validation=False).equals(part(tmp_path, reverse, split, validation=False))


def test_rows_are_shuffled_by_the_seed(tmp_path: Path) -> None:
    one = part(tmp_path, ROWS, Split(seed=1), validation=False)
    other = part(tmp_path, ROWS, Split(seed=2), validation=False)
    assert one.column("a") != other.column("a")
    assert sorted(one.column("a").to_pylist()) == sorted(other.column("a").to_pylist()) == list(range(200))


def test_both_sides_are_all_rows_and_have_their_share(tmp_path: Path) -> None:
    split = Split(share=0.2)
    sides = [part(tmp_path, ROWS, split, validation=validation) for validation in (False, True)]
    assert [side.num_rows for side in sides] == [160, 40]
    assert sorted(value for side in sides for value in side.column("a").to_pylist()) == list(range(200))


def test_groups_stay_together_and_classes_keep_their_shares(tmp_path: Path) -> None:
    users = [
        {*part(tmp_path, ROWS, Split(share=0.25, by=("user",)), validation=side).column("user").to_pylist()}
        for side in (False, True)
    ]
    assert [len(each) for each in users] == [15, 5]
    assert not users[0] & users[1]
    held = part(tmp_path, ROWS, Split(share=0.2, stratify="c"), validation=True)
    assert Counter(held.column("c").to_pylist()) == {"x": 10, "y": 30}


def test_rows_of_the_same_content_are_on_both_sides(tmp_path: Path) -> None:
    rows = pa.table({"sex": ["f", "m", "m", "m"] * 100, "y": [0, 0, 1, 1] * 100})
    split = Split(share=0.2, stratify="y")
    sides = [part(tmp_path, rows, split, validation=validation) for validation in (False, True)]
    assert [side.num_rows for side in sides] == [320, 80]
    for side in sides:
        assert len(Counter(zip(*side.to_pydict().values(), strict=True))) == 3
    reverse = rows.take(list(reversed(range(400))))
    assert part(tmp_path, reverse, split, validation=True).equals(sides[1])


def test_a_statement_names_its_validation_rows(tmp_path: Path) -> None:
    table = pa.table({"a": [number % 7 for number in range(60)], "y": [float(number) for number in range(60)]})
    select = statement(
        select="SELECT * FROM things WHERE y < 50", validation__select="SELECT * FROM things WHERE y >= 50"
    )
    prepared = prepare(tmp_path, table, select)
    assert prepared.validation_data is not None
    assert sorted(pq.read_table(prepared.validation_data).column("y").to_pylist()) == [50.0 + n for n in range(10)]
    assert pq.read_table(prepared.training_data).num_rows == 50
    none = prepare(tmp_path, table, statement(validation__split=0))
    assert none.validation_data is None
    with pytest.raises(UserError, match=r"validation\.select has no column 'a'"):
        prepare(tmp_path, table, statement(validation__select="SELECT y FROM things"))


def test_the_same_statement_prepares_the_same_files(tmp_path: Path) -> None:
    table = pa.table({"a": [f"w{number % 7}" for number in range(60)], "y": [float(number) for number in range(60)]})
    one = prepare(tmp_path, table, statement())
    before = pq.read_table(one.training_data), one.features.read_bytes(), Path(one.model_def).read_bytes()
    two = prepare(tmp_path, table.take(list(reversed(range(60)))), statement())
    assert pq.read_table(two.training_data).equals(before[0])
    assert (two.features.read_bytes(), Path(two.model_def).read_bytes()) == before[1:]
