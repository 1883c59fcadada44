"""Rows for a trained model, and the table of its predictions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.sql.statements_for_tests import TABLE, prepare, statement

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases import Database, open_database
from elasticdl.sql.preparation import PreparedTraining, prepare_rows, write_predictions

N = 30
ROWS = pa.table(
    {
        "id": pa.array([2**62 + number for number in range(N)], pa.int64()),
        "a": [number % 7 for number in range(N)],
        "on": pa.array(range(N), pa.int32()).cast(pa.date32()),
        "kind": [(7, 8, 9)[number % 3] for number in range(N)],
    }
)


def trained(folder: Path, label: str = "kind") -> tuple[PreparedTraining, Database]:
    prepared = prepare(folder, ROWS, statement(label))
    return prepared, open_database(str(folder / "tables"))


def test_predictions_stand_beside_the_rows_they_are_for(tmp_path: Path) -> None:
    prepared, database = trained(tmp_path)
    rows = prepare_rows(f'SELECT id, a, "on" FROM {TABLE}', database, prepared.features, tmp_path / "p", label=False)
    probabilities = [[0.0, 0.0, 0.0] for _ in range(N)]
    for number, each in enumerate(probabilities):
        each[number % 3] = 1.0
    output = tmp_path / "output"
    output.mkdir()
    for part, (start, end) in enumerate([(0, 11), (11, 12), (12, N)]):  # The files of the job's tasks.
        values = pa.array(probabilities[start:end], pa.list_(pa.float32(), 3))
        pq.write_table(pa.table({"prediction": values}), output / f"part-{part:05}-of-00003.parquet")
    into = {"into": "guesses", "features": prepared.features, "probabilities": True}
    assert write_predictions(output, rows, database, column=None, **into) == N  # type: ignore[arg-type]
    found = pq.read_table(tmp_path / "tables" / "guesses.parquet")
    assert found.column_names == ["id", "a", "on", "predicted_kind", "predicted_kind_probabilities"]
    assert found.column("predicted_kind").type == pa.int64()
    assert found.column("predicted_kind").to_pylist() == ROWS.column("kind").to_pylist()
    assert found.column("id").to_pylist() == ROWS.column("id").to_pylist()
    assert found.column("predicted_kind_probabilities").to_pylist() == probabilities
    database.close()


def test_a_column_of_the_name_of_the_prediction_is_replaced(tmp_path: Path) -> None:
    prepared, database = trained(tmp_path, "a")
    rows = prepare_rows(f"SELECT * FROM {TABLE}", database, prepared.features, tmp_path / "p", label=False)
    output = tmp_path / "output"
    output.mkdir()
    pq.write_table(pa.table({"prediction": [[0.1] * 7] * N}), output / "part-00000-of-00001.parquet")
    write_predictions(
        output, rows, database, into="guesses", column="a", features=prepared.features, probabilities=False
    )
    found = database.find("guesses")
    assert found is not None
    assert found.columns == ("id", "on", "kind", "a")
    database.close()


@pytest.mark.parametrize(
    ("query", "label", "says"),
    [
        ("SELECT id FROM things", False, r"lacks columns that the model takes: a, on"),
        ("SELECT a, kind FROM things", True, r"takes: on\n  Select the columns of the training"),
        ('SELECT a, "on" FROM things', True, r"lacks columns that the model takes: kind"),
        ('SELECT [a] AS a, "on" FROM things', False, r"'a' is list<.*and was integer when the model was trained"),
        ('SELECT a, "on", 5 AS kind FROM things', True, r"(?s)NULL in 30 rows of 30 or no class of the model.*7, 8, 9"),
        ("SELECT * FROM things WHERE a > 99", False, r"the SELECT has no rows"),
    ],
)
def test_rows_that_do_not_fit_the_model_are_refused(tmp_path: Path, query: str, label: bool, says: str) -> None:
    prepared, database = trained(tmp_path)
    with pytest.raises(UserError, match=says):
        prepare_rows(query, database, prepared.features, tmp_path / "p", label=label)
    database.close()


def test_texts_in_place_of_numbers_are_refused_unless_some_of_them_are_numbers(tmp_path: Path) -> None:
    prepared, database = trained(tmp_path)
    for said, query in (
        ("'a' has 30 texts, none of which is a number", f"SELECT * REPLACE ('x' || a AS a) FROM {TABLE}"),
        ("'on' has 30 texts, none of which is a date", f"SELECT * REPLACE ('x' AS \"on\") FROM {TABLE}"),
    ):
        with pytest.raises(UserError, match=said):
            prepare_rows(query, database, prepared.features, tmp_path / "p", label=False)
    query = f"SELECT * REPLACE (CASE WHEN a > 5 THEN 'unknown' ELSE CAST(a AS VARCHAR) END AS a) FROM {TABLE}"
    assert prepare_rows(query, database, prepared.features, tmp_path / "p", label=False).rows == N
    database.close()


def test_rows_are_prepared_with_the_parameters_of_the_training(tmp_path: Path) -> None:
    prepared, database = trained(tmp_path)
    query = f'SELECT A, "ON", kind FROM {TABLE} ORDER BY id DESC'
    rows = prepare_rows(query, database, prepared.features, tmp_path / "p", label=True)
    found = pq.read_table(rows.data)
    assert found.column("a").to_pylist() == [float(number % 7) for number in reversed(range(N))]
    assert found.column("kind").to_pylist() == [number % 3 for number in reversed(range(N))]
    database.close()
