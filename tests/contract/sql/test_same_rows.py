"""A table gives the same model and the same records from every database, for training, prediction and evaluation."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.contract.sql.conftest import KINDS, opener

from elasticdl.sql.preparation import prepare_rows, prepare_training
from elasticdl.sql.statements import Name, Query, Train

SELECT = "SELECT * FROM people"
LABEL = "kind"


def people() -> pa.Table:
    """Rows with NULLs, numbers of 64 bits and names that need quotes; without types that SQLite has not."""
    chosen = random.Random(5)
    rows = [
        {
            "größe": chosen.choice([None, chosen.gauss(170, 12)]),
            "user id": chosen.randrange(1 << 62, (1 << 62) + 9),
            "town": chosen.choice(["Kraków", "", "O'Fallon", None]),
            "on": chosen.choice(["2020-02-29", "1969-12-31"]),
            LABEL: chosen.choice(["a", "b", "ü"]),
        }
        for _ in range(200)
    ]
    return pa.Table.from_pylist(rows)


def test_every_database_gives_the_same_model_and_records(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        database = opener(kind, folder, request, monkeypatch)()
        table = people()
        database.write("people", table.schema, table.to_batches())
        statement = Train(Query(SELECT), (Name(LABEL),), Name("m"))
        (folder / "work").mkdir()
        prepared = prepare_training(statement, database, folder / "work", say=lambda _: None)
        assert prepared.validation_data is not None
        rows = [prepared.training_data, prepared.validation_data]
        for label in (False, True):
            at = folder / f"rows-{label}"
            rows.append(prepare_rows(SELECT, database, prepared.features, at, label=label).data)
        database.close()
        tables = [pq.read_table(each) for each in rows]
        assert tables[2].equals(tables[3].select(tables[2].column_names)), "PREDICT and EVALUATE differ"
        features = prepared.features.read_text()
        by_content = [each.sort_by([(name, "ascending") for name in each.column_names]) for each in tables[2:]]
        found[kind] = (features, tables[:2], by_content)
    first = found[KINDS[0]]
    for kind, (features, divided, scored) in found.items():
        assert features == first[0], kind
        assert divided == first[1], kind  # In the same order, though databases return rows in any.
        assert scored == first[2], kind
